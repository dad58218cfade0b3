// Builds one script and one style sheet from the sources in this folder.
// The script begins with a hash of the sources, so that a test without node can compare it.

import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { build } from 'esbuild';

const sources = readdirSync('.').filter((name) => /\.(js|mjs|css)$/.test(name) || name === 'package.json').sort();
const hash = createHash('sha256');
for (const name of sources) hash.update(`${name}\0`).update(readFileSync(name)).update('\0');
const digest = hash.digest('hex');

const license = readFileSync('node_modules/d3-hierarchy/LICENSE', 'utf8').trim();
const version = JSON.parse(readFileSync('node_modules/d3-hierarchy/package.json', 'utf8')).version;
const banner = `/*! sources sha256 ${digest} */\n/*! with d3-hierarchy ${version}:\n${license}\n*/`;

mkdirSync('../built', { recursive: true });
for (const [entry, out, first] of [['report.js', 'viewer.js', banner], ['viewer.css', 'viewer.css', '']]) {
  const { outputFiles } = await build({
    entryPoints: [entry], bundle: true, minify: true, write: false, format: 'iife', charset: 'utf8',
    target: ['es2023'], legalComments: 'none',
  });
  // Neither may end the element of the page that holds it.
  const text = outputFiles[0].text.replaceAll('</', entry.endsWith('.js') ? '<\\/' : '<\\2f ');
  writeFileSync(`../built/${out}`, first ? `${first}\n${text}` : text);
  console.log(`${out}: ${text.length} bytes`);
}
