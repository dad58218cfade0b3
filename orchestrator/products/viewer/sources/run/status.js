// The glyph, the word and the colour group of each status: a test compares them with the summary.
// Colour never stands alone: every view shows the glyph or the word too.

export const STATUSES = {
  queued: { glyph: '·', word: 'queued', group: 'queued' },
  running: { glyph: '◐', word: 'running', group: 'running' },
  quiet: { glyph: '◔', word: 'quiet', group: 'running' },
  waiting: { glyph: '!', word: 'waiting', group: 'waiting' },
  interrupted: { glyph: '◌', word: 'interrupted', group: 'interrupted' },
  succeeded: { glyph: '✓', word: 'done', group: 'done' },
  failed: { glyph: '✗', word: 'failed', group: 'failed' },
  timed_out: { glyph: '✗', word: 'timed out', group: 'failed' },
  over_budget: { glyph: '✗', word: 'over budget', group: 'failed' },
  lost: { glyph: '✗', word: 'lost', group: 'failed' },
  cancelled: { glyph: '⊘', word: 'cancelled', group: 'cancelled' },
  refused: { glyph: '⊘', word: 'refused', group: 'cancelled' },
};

// In order of urgency.
export const GROUPS = {
  waiting: { glyph: '!', word: 'waiting' },
  running: { glyph: '◐', word: 'running' },
  failed: { glyph: '✗', word: 'failed' },
  interrupted: { glyph: '◌', word: 'interrupted' },
  queued: { glyph: '·', word: 'queued' },
  cancelled: { glyph: '⊘', word: 'cancelled' },
  done: { glyph: '✓', word: 'done' },
};

export const GROUP_NAMES = Object.keys(GROUPS);

// A status of a later version is shown as its own word.
export function describe(status) {
  return STATUSES[status] ?? { glyph: '?', word: status, group: 'queued' };
}

export function groupOf(status) {
  return describe(status).group;
}
