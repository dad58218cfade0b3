// The same run without a browser: as a command, as a request, and in Python.

// run: {agent, input, instructions, language_model, budget} as the server takes it.
// files: [{name, type}]. source: {file, variable} where the agent is defined, as far as that is known.
export function runCommands(run, files, source, origin) {
  return [
    ['Command line', commandLine(run, files, source)],
    ['HTTP', request(run, files, origin)],
    ['Python', python(run, files, source)],
  ];
}

function commandLine(run, files, { file }) {
  const words = ['orchestrator', 'run', `${file || 'FILE'}:${run.agent}`];
  // What begins like an option is none.
  const isAlike = run.input.startsWith('-');
  if (!isAlike) words.push(run.input);
  for (const it of files) words.push('--attach', it.name);
  if (run.instructions) words.push('--instructions', run.instructions);
  if (run.language_model) words.push('--model', run.language_model);
  for (const [kind, limit] of Object.entries(run.budget ?? {})) words.push(`--budget-${kind}`, String(limit));
  if (isAlike) words.push('--', run.input);
  return words.map(quoted).join(' ');
}

function request(run, files, origin) {
  const curl = `curl ${origin}/v1/runs -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json'`;
  if (!files.length) return `${curl} \\\n  -d ${quoted(JSON.stringify(run))}`;
  const inside = (text) => JSON.stringify(text).replace(/[\\$`]/g, '\\$&');
  const parts = files.map((it) => `{"type": "data", "media_type": ${inside(it.type)}, "name": ${inside(it.name)},`
    + ` "data": "$(base64 < ${quoted(it.name)} | tr -d '\\n')"}`);
  const fields = Object.entries(run).map(([name, value]) => `"${name}": ${inside(value)}`);
  return `${curl} -d @- <<END\n{${fields.join(', ')}, "parts": [\n  ${parts.join(',\n  ')}]}\nEND`;
}

function python(run, files, { file, variable }) {
  const name = variable || run.agent.replace(/\W/g, '_');
  const changes = [];
  if (run.instructions) changes.push(`instructions=${name}.instructions + ${text(`\n\n${run.instructions}`)}`);
  if (run.language_model) changes.push(`model=${text(run.language_model)}`);
  const budget = Object.entries(run.budget ?? {}).map(([kind, value]) => `${kind}=${value}`).join(', ');
  const names = ['run_sync', budget && 'budget', files.length && 'Part', isModule(file) ? '' : 'load_agents'].filter(Boolean).sort();
  const lines = [];
  if (files.length) lines.push('from pathlib import Path', '');
  if (changes.length) lines.push('import attrs');
  lines.push(`from orchestrator import ${names.join(', ')}`);
  const module = file ? file.replace(/\.py$/, '') : 'FILE';
  if (isModule(file) && /^[A-Za-z_]\w*$/.test(module)) lines.push(`from ${module} import ${name}`);
  else if (isModule(file)) lines.push('import importlib', '', `${name} = importlib.import_module(${text(module)}).${name}`);
  else lines.push('', `${name} = load_agents(${text(file)})[${text(run.agent)}]`);
  lines.push('');
  if (changes.length) lines.push(`${name} = attrs.evolve(${name}, ${changes.join(', ')})`);
  if (files.length) {
    lines.push('files = [', ...files.map((it) => `    Part(${text(it.type)}, data=Path(${text(it.name)}).read_bytes(), name=${text(it.name)}),`), ']');
  }
  const given = `${name}, ${text(run.input)}${files.length ? ', *files' : ''}`;
  if (budget) lines.push(`with budget(${budget}):`, `    print(run_sync(${given}).output)`);
  else lines.push(`print(run_sync(${given}).output)`);
  return lines.join('\n');
}

// Whether a file is a Python module; a folder of agents and a team.yaml are read instead.
function isModule(file) {
  return !file || file.endsWith('.py');
}

// A text as Python writes it: JSON writes it so, too.
function text(words) {
  return JSON.stringify(words);
}

// One word of a shell, whatever is in it.
function quoted(word) {
  return /^[\w.:/=,+@%-]+$/.test(word) ? word : `'${word.replace(/'/g, "'\\''")}'`;
}
