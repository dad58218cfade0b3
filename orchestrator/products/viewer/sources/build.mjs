// Builds what ships from the sources in this folder: the report's page, and the console's.
// Each script begins with a hash of all sources, so that a test without node can compare it.

import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { build } from 'esbuild';

const ENTRIES = ['report/report.js', 'report/report.css', 'console/console.js', 'console/console.css', 'console/worker.js'];

const sources = readdirSync('.', { recursive: true, withFileTypes: true })
  .filter((it) => it.isFile() && !it.parentPath.includes('node_modules'))
  .map((it) => (it.parentPath === '.' ? it.name : `${it.parentPath}/${it.name}`))
  .filter((name) => /\.(js|mjs|css)$/.test(name) || name === 'package.json')
  .sort();
const hash = createHash('sha256');
for (const name of sources) hash.update(`${name}\0`).update(readFileSync(name)).update('\0');
const digest = hash.digest('hex');

const license = readFileSync('node_modules/d3-hierarchy/LICENSE', 'utf8').trim();
const version = JSON.parse(readFileSync('node_modules/d3-hierarchy/package.json', 'utf8')).version;
const banner = `/*! sources sha256 ${digest} */\n/*! with d3-hierarchy ${version}:\n${license}\n*/`;

mkdirSync('../built', { recursive: true });
for (const entry of ENTRIES) {
  const { outputFiles } = await build({
    entryPoints: [entry], bundle: true, minify: true, write: false, format: 'iife', charset: 'utf8',
    target: ['es2023'], legalComments: 'none',
  });
  const isScript = entry.endsWith('.js');
  // Neither may end the element of the page that holds it.
  const text = outputFiles[0].text.replaceAll('</', isScript ? '<\\/' : '<\\2f ');
  const out = entry.slice(entry.lastIndexOf('/') + 1);
  writeFileSync(`../built/${out}`, isScript ? `${banner}\n${text}` : text);
  console.log(`${out}: ${text.length} bytes`);
}
