// Named checks of one client, run one after the other: a line of JSON for each, as check_kit.py.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import process from "node:process";

const [, program, url, ...wanted] = process.argv;
const packages = createRequire(path.join(process.cwd(), "package.json"));
const checks = [];

export const SERVER = url;
export const URL_V1 = `${url}/v1`;
export const KEY = process.env.ORCHESTRATOR_API_KEY;
export const PIXEL =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/** Load a package of the environment, which is the current folder. */
export const load = (name) => import(packages.resolve(name));

/** Add a check of a feature. With `fails`, which says why, it has to fail. */
export function check(feature, name, run, fails = "") {
  checks.push({ feature, name, run, fails });
}

/** Run all checks, or those of the features that the command line names. */
export async function main(...names) {
  const versions = Object.fromEntries(
    names.map((name) => [name, versionOf(name)]),
  );
  versions.node = process.versions.node;
  console.log(JSON.stringify({ versions }));
  for (const { feature, name, run, fails } of checks) {
    if (wanted.length && !wanted.includes(feature)) continue;
    const began = performance.now();
    let error = "";
    try {
      await run();
    } catch (exc) {
      error = `${exc?.constructor?.name ?? "Error"}: ${exc?.message ?? exc}`;
      error = error.split("\n")[0].slice(0, 400);
      if (!fails) console.error(exc);
    }
    const seconds = Math.round(performance.now() - began) / 1000;
    console.log(
      JSON.stringify({ feature, check: name, error, fails, seconds }),
    );
  }
  // A client may keep connections open.
  process.exit(0);
}

function versionOf(name) {
  const file = path.join(process.cwd(), "node_modules", name, "package.json");
  return JSON.parse(readFileSync(file)).version;
}

/** Return what the server says of itself, past the client. */
export async function get(where) {
  const answer = await fetch(`${url}${where}`, {
    headers: { authorization: `Bearer ${KEY}` },
  });
  const text = await answer.text();
  const isJson = answer.headers
    .get("content-type")
    .startsWith("application/json");
  return isJson ? JSON.parse(text) : text;
}

export const newestRun = async () =>
  (await get("/v1/runs?limit=1")).data[0].id;

/** Wait until a run is over, and return how it ended. */
export async function endingOf(run) {
  await get(`/v1/runs/${run}/events`);
  return (await get(`/v1/runs/${run}`)).status;
}

export function equal(found, wanted) {
  const [one, two] = [found, wanted].map((it) => JSON.stringify(it));
  if (one !== two) throw new Error(`${one}, not ${two}`);
}

export function contains(found, wanted) {
  if (!found?.includes(wanted))
    throw new Error(`${wanted} is not in ${JSON.stringify(found)}`);
}

/** Return the error of a promise, which has to be of a class. */
export async function rejected(kind, promise) {
  try {
    await promise;
  } catch (exc) {
    if (exc instanceof kind || kind.isInstance?.(exc)) return exc;
    throw exc;
  }
  throw new Error(`there is no error; it should be ${kind.name}`);
}

export async function collect(stream) {
  const found = [];
  for await (const it of stream) found.push(it);
  return found;
}
