// The address of what a report shows: #task=t_1&view=flame. Every task and view has one.

export class Address {
  constructor(viewer) {
    this.viewer = viewer;
    this.hash = null; // the address of what is shown
    window.addEventListener('hashchange', () => this.follow());
  }

  // Show the task and the view that the address names.
  follow() {
    this.hash = location.hash;
    const named = new URLSearchParams(location.hash.slice(1));
    const { viewer } = this;
    const view = named.get('view') ?? 'tree';
    if (viewer.tab !== view && viewer.tabList().some(([name]) => name === view)) viewer.showTab(view);
    const number = viewer.model.numbers.get(named.get('task'));
    if (number !== undefined && viewer.active !== named.get('task')) viewer.reveal(number, { quietly: true });
  }

  // Say in the address what is shown, unless another one was asked for and is not shown yet.
  note() {
    if (this.hash === null || location.hash !== this.hash) return;
    const { viewer } = this;
    const named = new URLSearchParams();
    // A row of many has no address of its own; the root needs none.
    if (viewer.selected) named.set('task', viewer.active);
    if (viewer.tab !== 'tree') named.set('view', viewer.tab);
    const hash = named.size ? `#${named}` : '';
    if (hash === location.hash) return;
    history.replaceState(null, '', hash || location.pathname + location.search);
    this.hash = location.hash;
  }
}
