// The transcripts of a report: in packets, each unpacked when one of its tasks is selected.

import { unpacked } from '../run/columns.js';
import { element } from '../run/dom.js';

export class Transcripts {
  // index: task id to the number of its packet.
  constructor({ index, kind, statuses }, packetOf) {
    this.index = new Map(Object.entries(index));
    this.kind = kind;
    this.statuses = statuses; // of the tasks whose transcripts are in the report
    this.packetOf = packetOf;
    this.packets = new Map();
  }

  has(id) {
    return this.index.has(id);
  }

  async read(id) {
    const number = this.index.get(id);
    if (!this.packets.has(number)) this.packets.set(number, unpacked(this.packetOf(number)));
    return (await this.packets.get(number))[id];
  }

  // Why a transcript is not there, as the content of an element.
  why(model, number) {
    const option = (words) => element('code', {}, `--transcripts ${words}`);
    if (this.kind === 'none') {
      return ['This report carries no transcripts; written with ', option('all'), ' it would.'];
    }
    const isWanted = this.kind !== 'failed' || this.statuses.includes(model.status[number]);
    if (isWanted && model.started[number] === null) return ['It never began, so nothing was said.'];
    if (isWanted) return ['It is not in this file: the summary says how much it may carry.'];
    return ['This report carries the transcripts of what did not succeed; written with ',
      option('all'), ' it would have this one too.'];
  }
}
