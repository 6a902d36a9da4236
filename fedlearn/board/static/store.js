// Histories of runs as the board sends them: all of one at first, then what changed.

import { refusal } from "./format.js";

async function get(path) {
  const answer = await fetch(path).catch(() => { throw new Error("The board can't be reached."); });
  if (!answer.ok) throw new Error(await refusal(answer));
  return answer.json();
}

export const api = {
  runs: () => get("api/runs"),
  run: (name) => get(`api/runs/${name}`),
  abilities: (name) => get(`api/runs/${name}/abilities`),
};

export class Store {
  constructor(changed) {
    this.histories = new Map();
    this.loading = new Map();
    this.changed = changed;
  }

  get(name) {
    return this.histories.get(name);
  }

  // One request at a time for a run: whoever asks meanwhile waits for the same answer.
  load(name) {
    if (!this.loading.has(name)) {
      const loaded = get(`api/runs/${name}/history`).then((history) => {
        this.histories.set(name, history);
        this.changed(name, history.samples);
      }).finally(() => this.loading.delete(name));
      this.loading.set(name, loaded);
    }
    return this.loading.get(name);
  }

  async apply(name, change) {
    if (this.loading.has(name)) await this.loading.get(name).catch(() => {});
    const history = this.histories.get(name);
    if (!history || change.version <= history.version) return;
    if (change.version !== history.version + 1 || change.epoch !== history.epoch) {
      await this.load(name).catch(() => {});
      return;
    }
    history.version = change.version;
    if (change.curve) {
      for (const part of Object.keys(change.curve)) {
        for (const [column, values] of Object.entries(change.curve[part])) {
          history.curve[part][column].splice(change.from, Infinity, ...values);
        }
      }
      history.shown = change.shown;
      history.validation.push(...change.validation);
    }
    history.samples.push(...change.samples);
    if (history.samples.length > 400) history.samples.splice(0, 200, ...history.samples.slice(0, 200).filter((_, at) => at % 2 === 0));
    this.changed(name, change.samples);
  }
}
