// Numbers for people: short in a table, exact in the details.

const NAMES = new Intl.NumberFormat('en-US');

export function count(number) {
  return NAMES.format(number);
}

export function counted(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? '' : 's'}`;
}

// With calls that were broken off it is an estimate.
export function tokens(number, estimated = 0) {
  if (estimated) return `~${tokens(number)}`;
  if (number < 1000) return String(number);
  if (number < 1e6) return `${(number / 1e3).toFixed(1)}k`;
  if (number < 1e9) return `${(number / 1e6).toFixed(2)}M`;
  return `${(number / 1e9).toFixed(2)}G`;
}

// Micro-dollars. With calls whose cost is not known it is a lower bound, and "unknown" is not "free".
export function money(cost, unknown) {
  if (unknown && !cost) return 'unknown';
  return `${unknown ? '≥ ' : ''}${dollars(cost)}`;
}

function dollars(cost) {
  const amount = cost / 1e6;
  if (!cost) return '$0';
  if (amount < 0.0001) return '<$0.0001';
  if (amount >= 1000) return `$${NAMES.format(Math.round(amount))}`;
  if (amount >= 1) return `$${amount.toFixed(2)}`;
  return `$${amount.toFixed(amount >= 0.01 ? 3 : 4)}`;
}

// With as many decimals as matter: six of a cent, two of a thousand dollars.
export function exactMoney(cost, unknown) {
  if (unknown && !cost) return 'price unknown';
  const decimals = cost >= 1e9 ? 2 : cost >= 1e6 ? 4 : 6;
  const rounded = (cost / 1e6).toFixed(decimals);
  const [whole, rest] = rounded.split('.');
  const short = decimals === 2 ? rest : rest.replace(/0{1,4}$/, '');
  return `${unknown ? '≥ ' : ''}$${NAMES.format(Number(whole))}.${short}`;
}

// The part of the input that came from a cache, and the money that it saved.
export function cached(read, input, saved) {
  const share = `${tokens(read)} (${Math.round((100 * read) / Math.max(1, input))} %)`;
  if (!saved) return share;
  return `${share}, ${saved > 0 ? 'saved' : 'lost'} ${exactMoney(Math.abs(saved), 0)}`;
}

export function duration(seconds) {
  if (seconds === null || Number.isNaN(seconds)) return '';
  if (seconds < 0.0005) return '0s';
  if (seconds < 1) return `${Math.round(seconds * 1000)}ms`;
  if (seconds < 59.95) return `${seconds.toFixed(1)}s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)}m ${two(whole % 60)}s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 24 * 60) return `${Math.floor(minutes / 60)}h ${two(minutes % 60)}m`;
  const hours = Math.round(seconds / 3600);
  return `${Math.floor(hours / 24)}d ${two(hours % 24)}h`;
}

// The time since the start, for an axis: no fraction where none is needed.
export function instant(seconds, step) {
  if (step >= 1 && seconds < 60) return `${Math.round(seconds)}s`;
  if (step < 0.01) return `${Math.round(seconds * 1000)}ms`;
  if (step < 1) return `${seconds.toFixed(step < 0.1 ? 2 : 1)}s`;
  return duration(Math.round(seconds));
}

function two(number) {
  return String(number).padStart(2, '0');
}

// What turns the direction of writing, or is no character at all, would change what stands around it.
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

export function printable(text) {
  return text.replace(CONTROLS, '\ufffd');
}

export function oneLine(text, most = 160) {
  const words = printable(text.slice(0, 4 * most)).replace(/\s+/g, ' ').trim();
  return words.length <= most ? words : `${words.slice(0, most - 1)}…`;
}
