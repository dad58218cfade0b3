// How far a run has come, as `delegation/tree/progress.py` says it; tests compare both.

const LEAST_ENDED = 3;

// toCome: how many more tasks its fan-outs will ask for. Return the tasks below the root that have
// ended, those that are known of, and the seconds until all have ended at the pace so far, or null.
export function progressOf(model, toCome, now = model.last) {
  let ended = 0;
  for (let number = 1; number < model.size; number += 1) if (model.ended[number] !== null) ended += 1;
  const known = model.size - 1 + toCome;
  // In a conversation of several turns, most of the time is that of its person.
  const hasPace = ended >= LEAST_ENDED && model.turns.length === 1;
  const left = known - ended;
  return { ended, known, secondsLeft: hasPace && left ? (Math.max(0, now - model.start) / ended) * left : null };
}
