// Says which addresses in texts of models become links.

const IPV4 = /^(127|0)\.\d+\.\d+\.\d+$/;
const IPV6 = /^\[::(1|ffff:(7f[0-9a-f]{2}|0):[0-9a-f]+|7f[0-9a-f]{2}:[0-9a-f]+)?\]$/;
const NAME = /(^|\.)(localhost|localdomain)\.?$|^ip6-loopback$/;

// Whether an address leads to the web. This machine is no part of it: other users of it, and agents,
// may serve pages there, and a browser sends them the cookies of all ports.
export function leadsToTheWeb(target) {
  if (!/^https?:\/\//i.test(target)) return false;
  try {
    // The browser's own reading of an address: 0x7f.1 and 2130706433 are 127.0.0.1, too.
    const { hostname } = new URL(target);
    return ![IPV4, IPV6, NAME].some((it) => it.test(hostname));
  } catch {
    return false;
  }
}
