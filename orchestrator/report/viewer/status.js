// The words, signs and colours of what a task is doing and how it ended.
// Colour never stands alone: whoever shows a status shows its sign and its word too.

export const STATUSES = {
  queued: { sign: '·', word: 'queued', group: 'queued' },
  running: { sign: '◐', word: 'running', group: 'running' },
  quiet: { sign: '◔', word: 'quiet', group: 'running' },
  waiting: { sign: '!', word: 'waiting', group: 'waiting' },
  interrupted: { sign: '!', word: 'interrupted', group: 'interrupted' },
  succeeded: { sign: '✓', word: 'done', group: 'done' },
  failed: { sign: '✗', word: 'failed', group: 'failed' },
  timed_out: { sign: '✗', word: 'timed out', group: 'failed' },
  over_budget: { sign: '✗', word: 'over budget', group: 'failed' },
  lost: { sign: '✗', word: 'lost', group: 'failed' },
  cancelled: { sign: '⊘', word: 'cancelled', group: 'cancelled' },
  refused: { sign: '⊘', word: 'refused', group: 'cancelled' },
};

// In the order in which people want to know of them.
export const GROUPS = {
  waiting: { sign: '!', word: 'waiting' },
  running: { sign: '◐', word: 'running' },
  failed: { sign: '✗', word: 'failed' },
  interrupted: { sign: '!', word: 'interrupted' },
  queued: { sign: '·', word: 'queued' },
  cancelled: { sign: '⊘', word: 'cancelled' },
  done: { sign: '✓', word: 'done' },
};

export const GROUP_NAMES = Object.keys(GROUPS);

// A status that a later version knows and this one does not is shown as its own word.
export function describe(status) {
  return STATUSES[status] ?? { sign: '?', word: status, group: 'queued' };
}

export function groupOf(status) {
  return describe(status).group;
}
