// The transcripts of a live run, asked for when a task is selected.

export class LiveTranscripts {
  constructor(api) {
    this.api = api;
    this.cut = 0;
  }

  has() {
    return true;
  }

  async read(id) {
    const page = await this.api.get(`v1/tasks/${id}/transcript?limit=200`);
    return page.data.map(({ role, text, model, failed }) => ({ who: model || role, text, failed }));
  }
}
