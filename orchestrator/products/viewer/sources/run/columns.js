// Unpacks a run: columns of small numbers, gzipped, in base64. `report/packed_tree.py` writes it.

import { Model, USAGE } from './model.js';

const FORMAT = 1;

export async function unpacked(base64) {
  const stream = new Blob([bytesOf(base64)]).stream().pipeThrough(new DecompressionStream('gzip'));
  return JSON.parse(await new Response(stream).text());
}

function bytesOf(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at += 1) bytes[at] = text.charCodeAt(at);
  return bytes;
}

// Return the model of a run. Times are seconds since the epoch, to the millisecond.
export function modelOf(columns) {
  if (columns.format !== FORMAT) throw new Error(`columns of format ${columns.format}`);
  const { strings } = columns;
  const model = new Model();
  const names = [];
  // Always from the same start, so that the same moment is the same number.
  const moment = (milliseconds) => columns.start + milliseconds / 1000;
  const since = (from, milliseconds) => (milliseconds < 0 ? null : moment(from + milliseconds));
  const abandoned = new Set(columns.abandoned);
  let requested = 0;
  columns.ids.forEach((id, number) => {
    const parent = columns.parent[number] ? number - columns.parent[number] : -1;
    const agent = strings[columns.agent[number]];
    requested += columns.requested[number];
    names.push(null);
    model.add({
      id,
      parent: parent < 0 ? null : columns.ids[parent],
      agent,
      goal: strings[columns.goal[number]],
      label: strings[columns.label[number]],
      path: parent < 0 ? `/${agent}` : `${model.path[parent]}/${agent}[${numbered(names, parent, agent)}]`,
      mode: strings[columns.mode[number]],
      reason: strings[columns.reason[number]],
      status: strings[columns.status[number]],
      requested: moment(requested),
      started: since(requested, columns.started[number]),
      ended: since(requested, columns.ended[number]),
      error: strings[columns.error[number]],
      model: strings[columns.model[number]],
      tools: columns.tools[number],
      ask: strings[columns.ask[number]],
      abandoned: abandoned.has(number),
      chosen: columns.chosen?.[number] ?? '',
      needs: (columns.needs[number] ?? []).map((need) => columns.ids[need]),
    });
  });
  rollUp(model, USAGE.map((name) => columns.usage[name]));
  model.turns = columns.turns.map(([from, to]) => [moment(from), to === null ? null : moment(to)]);
  model.awaited = columns.awaited.map(([since, number]) => [moment(since), columns.ids[number]]);
  for (const [number, spans] of Object.entries(columns.waits)) {
    model.waits.set(Number(number), spans.map((span) => span.map(moment)));
  }
  model.last = moment(columns.last);
  return model;
}

function numbered(names, parent, agent) {
  names[parent] ??= new Map();
  const number = (names[parent].get(agent) ?? 0) + 1;
  names[parent].set(agent, number);
  return number;
}

// All at once: parents come before their children, so one pass backwards adds everything up.
function rollUp(model, usage) {
  const width = USAGE.length;
  for (let number = model.size - 1; number >= 0; number -= 1) {
    const parent = model.parent[number];
    for (let field = 0; field < width; field += 1) {
      const at = number * width + field;
      model.own[at] = usage[field][number];
      model.total[at] += usage[field][number];
      if (parent >= 0) model.total[parent * width + field] += model.total[at];
    }
  }
}
