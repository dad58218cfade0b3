// Which runs are listed: as the query of the address, of the server, and as a test of one run.

const DAY = 86_400;
const SINCE = { '': 0, day: DAY, week: 7 * DAY, month: 30 * DAY };

export class RunFilter {
  // query: URLSearchParams of the address.
  constructor(query) {
    this.q = query.get('q') ?? '';
    this.status = query.get('status') ?? '';
    this.agent = query.get('agent') ?? '';
    this.since = query.get('since') in SINCE ? query.get('since') : '';
    this.cost = Number(query.get('cost')) > 0 ? query.get('cost') : '';
  }

  get isEmpty() {
    return !(this.q || this.status || this.agent || this.since || this.cost);
  }

  // What stands in the address of the page.
  get query() {
    const { q, status, agent, since, cost } = this;
    return { q, status, agent, since, cost };
  }

  // What the server is asked for.
  asked(now) {
    const { q, status, agent, cost } = this;
    const given = { q, status, agent, cost_from: cost, created_after: this.begin(now) || '' };
    return new URLSearchParams(Object.entries(given).filter(([, value]) => value !== ''));
  }

  // Whether a run that has changed is listed: as the server decides it.
  lists(run, now) {
    const text = [run.id, run.about, ...Object.values(run.metadata)].join(' ').toLowerCase();
    return (!this.status || run.status === this.status)
      && (!this.agent || run.agent === this.agent)
      && run.created > this.begin(now)
      && run.usage.micro_usd >= Number(this.cost) * 1e6
      && this.q.toLowerCase().split(/\s+/).every((word) => text.includes(word));
  }

  begin(now) {
    return this.since ? Math.floor(now - SINCE[this.since]) : 0;
  }
}
