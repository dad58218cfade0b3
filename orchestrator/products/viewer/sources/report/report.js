// The entry point: reads the run from the page, and opens the viewer.

import { modelOf, unpacked } from '../run/columns.js';
import { Ledger } from '../run/ledger.js';
import { CollapsedTree } from '../run/collapse.js';
import { Rollups } from '../run/model.js';
import { Transcripts } from './transcripts.js';
import { STATUSES } from '../run/status.js';
import { peakOf, workChanges } from '../run/activity.js';
import { criticalPath } from '../run/critical_path.js';
import { progressOf } from '../run/progress.js';
import { Viewer } from '../run/viewer.js';
import { Address } from './address.js';

async function open() {
  const page = document.documentElement;
  const holder = document.getElementById('viewer');
  if (!holder) return;
  try {
    const about = JSON.parse(document.getElementById('about').textContent);
    const columns = await unpacked(document.getElementById('columns').textContent);
    const transcripts = new Transcripts(about.transcripts, (number) =>
      document.getElementById(`transcripts-${number}`).textContent);
    const summary = document.getElementById('summary');
    let address = null;
    const viewer = new Viewer(modelOf(columns), {
      title: about.title, transcripts, critical: about.critical, summary, drawn: () => address?.note(),
    });
    holder.append(viewer.element);
    page.classList.add('ready');
    viewer.collapseToFit();
    summary.addEventListener('click', (event) => {
      const link = event.target.closest('a[data-task]');
      if (!link) return;
      event.preventDefault();
      viewer.reveal(viewer.model.numbers.get(link.dataset.task));
      viewer.grid.focus();
    });
    document.getElementById('data')?.addEventListener('click', () => save(about.title, columns));
    globalThis.delegation.viewer = viewer;
    if (window === window.top) {
      // In the frame of a notebook it has no address, and takes no key from the page around it.
      address = new Address(viewer);
      address.follow();
      viewer.focus();
    }
    viewer.drawNow();
  } catch (error) {
    // The summary is there all the same: show why the viewer is not.
    page.classList.remove('ready');
    holder.textContent = `The viewer could not be opened: ${error.message}`;
    globalThis.delegation.error = error;
  }
}

function save(title, columns) {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([JSON.stringify(columns)], { type: 'application/json' }));
  link.download = `${title.replace(/[^\w-]+/g, '-').slice(0, 60) || 'run'}.json`;
  link.click();
}

// For tests, and for the console of the browser.
globalThis.delegation = { CollapsedTree, Ledger, Rollups, STATUSES, Viewer, criticalPath, modelOf, peakOf, progressOf, workChanges };
globalThis.delegation.opened = open();
