// The page: one run in focus, others laid over it, all of it kept up to date by one stream of events.

import { Curves, titleOf } from "./curves.js";
import { by, compact, duration, element, exact, moment, say, whole, words } from "./format.js";
import { Operator } from "./operator.js";
import { Samples } from "./samples.js";
import { Settings } from "./settings.js";
import { Store, api } from "./store.js";
import { Volunteers } from "./volunteers.js";
import { Write } from "./write.js";

const STATES = { running: "Running", waiting: "Waits for volunteers", paused: "Paused", ended: "Not running" };
const AGAIN_MS = 30_000;
const RETRY_MS = 3_000;

let runs = [];
let selected = "";
let born = "";
let canDo = undefined;
let status = null;
let stream = null;
let lost = 0; // when the stream ended, in seconds since 1970; 0 while there is one

const store = new Store((name, samples) => {
  curves.draw();
  if (name === selected && samples.length) {
    const history = store.get(name);
    if (samples === history.samples) pages.samples.show(samples);
    else pages.samples.add(samples);
  }
  figures();
});
const curves = new Curves(store, (names) => {
  for (const name of names) if (!store.get(name)) store.load(name).catch(fail);
  listen();
  curves.draw();
});
const pages = {
  samples: new Samples(), volunteers: new Volunteers(), write: new Write(() => selected), settings: new Settings(),
  operator: new Operator(() => selected),
};

function fail(error) {
  say("line", error.message);
}

function figures() {
  const history = store.get(selected);
  if (!history) return;
  const last = (name) => history.curve.mean[name].at(-1);
  const shown = Object.entries(status?.shown ?? {})[0] ?? [history.shown, last("shown")];
  // A return or reward is minus the loss, so that the spread of losses is its own.
  const spread = shown[1] != null && shown[1] === -(status?.loss ?? NaN) ? status.figures[history.spread] : null;
  const newest = Object.keys(status?.validation ?? {}).length ? status.validation : history.validation.at(-1)?.figures ?? {};
  const { step, seconds, work } = history.curve.axes;
  const unit = status?.unit ? `trial-${status.unit}` : "work";
  const entries = [
    [words(shown[0] || "loss"), exact(shown[1]), spread == null ? "" : `± ${exact(spread)}`],
    ...Object.entries(newest).map(([name, value]) => [name === shown[0] ? "on held-out data" : `${words(name)}, held out`, exact(value), ""]),
    ["steps", whole(status?.step ?? (step.at(-1) ?? -1) + 1), status?.steps ? `of ${whole(status.steps)}` : ""],
    ["volunteers", whole(status?.n_volunteers ?? 0), ""],
    [`${unit} a second`, compact(status?.state === "ended" ? last("work_per_s") : status?.work_per_s), ""],
    ["trained for", duration(seconds.at(-1)), work.at(-1) ? `${compact(work.at(-1))} ${unit}` : ""],
  ];
  if (status?.run_left_s != null && status.state !== "ended") entries.push(["left", duration(status.run_left_s), ""]);
  by("figures").replaceChildren(...entries.map(([name, value, more]) => {
    const [entry, data] = [element("div"), element("dd", value)];
    if (more) data.append(element("small", more));
    entry.append(element("dt", name), data);
    return entry;
  }));
}

function showStatus(found) {
  status = found;
  const state = found?.state ?? "ended";
  const reason = ["ended", "paused"].includes(state) && found?.reason ? `: ${found.reason}` : "";
  say("state", `${STATES[state] ?? state}${reason}`);
  by("state").dataset.state = state;
  if (canDo === null) abilities(selected);
  curves.setUnit(found?.unit);
  pages.volunteers.show(found);
  pages.operator.follow(found);
  figures();
}

function showDescribed(described) {
  pages.settings.show(described);
  pages.operator.show(described);
}

function showRuns(found) {
  runs = found;
  by("empty").hidden = runs.length > 0;
  by("pick").hidden = runs.length === 0;
  for (const part of document.querySelectorAll("main > section:not(#operator)")) part.hidden = runs.length === 0;
  const text = (run) => `${run.name} · ${titleOf(run, runs)}${run.state === "ended" ? "" : `, ${STATES[run.state]?.toLowerCase() ?? run.state}`}`;
  by("run").replaceChildren(...runs.map((run) => Object.assign(element("option", text(run)), { value: run.name })));
  const present = runs.find((run) => run.name === selected);
  if (present && present.born !== born) select(selected); // another run in a folder of the same name
  else if (!present) {
    if (runs.length) select((runs.find((run) => run.name === location.hash.slice(1)) ?? runs.find((run) => run.state !== "ended") ?? runs[0]).name);
  } else {
    by("run").value = selected;
    curves.setRuns(selected, runs);
  }
}

function select(name) {
  selected = name;
  born = runs.find((run) => run.name === name)?.born;
  canDo = undefined;
  by("run").value = name;
  document.title = `Run ${name} · fedlearn`;
  history.replaceState(null, "", `#${name}`);
  status = null;
  curves.baselines = {};
  pages.volunteers.forget();
  pages.write.forget();
  pages.samples.show(store.get(name)?.samples ?? []);
  curves.setRuns(name, runs);
  listen();
  store.load(name).then(() => {
    requestAnimationFrame(() => requestAnimationFrame(() => performance.mark("curve"))); // the frame after the drawing
    about(name);
  }).catch(fail);
}

// What is not needed to draw the curve comes after it.
async function about(name) {
  try {
    const described = await api.run(name);
    if (name !== selected) return;
    if (pages.settings.described.name !== name) { // else the stream was faster, and may have told what is newer
      showStatus(described.status);
      showDescribed(described);
    }
    await abilities(name);
  } catch (error) {
    fail(error);
  }
}

// What the model can do; asked again now and then where it could not be loaded.
async function abilities(name) {
  canDo = undefined;
  const found = await api.abilities(name).catch(() => null);
  if (name !== selected) return;
  by("write").hidden = !found?.writes;
  curves.baselines = found?.baselines ?? {};
  curves.draw();
  if (found) canDo = found;
  else setTimeout(() => { if (name === selected && canDo === undefined) canDo = null; }, AGAIN_MS);
}

function listen() {
  stream?.close();
  stream = new EventSource(`api/events?runs=${curves.names.join(",")}`);
  stream.onopen = () => {
    say("line", "");
    if (lost) for (const name of curves.names) store.load(name).catch(fail);
    lost = 0;
  };
  stream.onerror = () => {
    lost ||= Date.now() / 1000;
    say("line", `The board is away since ${moment(lost)}, and what is shown is from then; looking for it …`);
    say("state", "");
    if (stream.readyState === EventSource.CLOSED) setTimeout(begin, RETRY_MS); // refused, as by the proxy of a board that is away
  };
  stream.addEventListener("change", (event) => {
    const change = JSON.parse(event.data);
    store.apply(change.run, change);
  });
  stream.addEventListener("status", (event) => {
    const change = JSON.parse(event.data);
    if (change.run === selected) showStatus(change.status);
  });
  stream.addEventListener("described", (event) => {
    const described = JSON.parse(event.data);
    if (described.name === selected) showDescribed(described);
  });
  stream.addEventListener("runs", (event) => showRuns(JSON.parse(event.data)));
}

// Shows the list and listens from then on; tries again where there is no answer.
async function begin() {
  const before = stream;
  try {
    showRuns(await api.runs());
    if (stream === before) listen();
  } catch (error) {
    if (!lost) fail(error);
    setTimeout(begin, RETRY_MS);
  }
}

by("run").addEventListener("change", () => select(by("run").value));
addEventListener("hashchange", () => {
  const name = location.hash.slice(1);
  if (name.startsWith("token=")) location.reload();
  else if (name !== selected && runs.some((run) => run.name === name)) select(name);
});
pages.operator.start().catch(fail);
begin();
performance.mark("interactive");
