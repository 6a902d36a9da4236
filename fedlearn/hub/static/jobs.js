// The hub's jobs: made, started and stopped here; their curves are on the board's page.

import { by, element, exact, moment, refusal, say, whole } from "./format.js";

const KEY = "board-token"; // the board's page keeps it there, too
const SHOWN = 100_000;
let seen = Date.now() / 1000; // when the hub answered last

const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) {
  sessionStorage.setItem(KEY, given);
  history.replaceState(null, "", location.pathname);
}

export async function ask(method, path, body) {
  const token = sessionStorage.getItem(KEY);
  const headers = { ...(token && { Authorization: `Bearer ${token}` }), ...(body && { "Content-Type": "application/json" }) };
  const answer = await fetch(path, { method, headers, body: body && JSON.stringify(body) }).catch(() => {
    throw new Error(`The hub is away since ${moment(seen)}, and what is shown is from then; looking for it …`);
  });
  seen = Date.now() / 1000;
  if (answer.status === 401) sessionStorage.removeItem(KEY); // else each look would be a guess
  if (!answer.ok) throw new Error(await refusal(answer));
  return answer.json();
}

// Whatever goes wrong is said in the page.
export const said = (act) => async (...given) => {
  try {
    by("note").textContent = (await act(...given))?.message ?? "";
  } catch (error) {
    by("note").textContent = error.message;
  }
  await look();
};

export function button(text, act) {
  const made = Object.assign(element("button", text), { type: "button" });
  made.addEventListener("click", said(act));
  return made;
}

export function training() {
  const [epochs, rate] = [by("epochs").valueAsNumber, by("rate").valueAsNumber];
  return { ...(epochs > 0 && { epochs }), ...(rate > 0 && { learning_rate: rate }) };
}

function actions(job) {
  const number = job.job_id;
  const found = [];
  if (["created", "initialized"].includes(job.status)) found.push(button("Initialize", () => ask("POST", `api/network/initialize/${number}`)));
  if (job.status !== "training") found.push(button("Train", async () => {
    const told = await ask("POST", `api/network/train/${number}`, training());
    follow(number);
    return told;
  }));
  if (job.status !== "training") found.push(button("Delete", () => remove(number)));
  if (job.status === "training") found.push(button("Stop", () => ask("POST", `api/network/stop/${number}`)));
  found.push(button("Log", () => openLog(logOf(number), `Log of job ${number}`)));
  if (job.run) {
    found.push(Object.assign(element("a", "Curve"), { href: `./#${job.run}` }));
    found.push(Object.assign(element("a", "Model"), { href: `api/jobs/${number}/model`, download: "" }));
  }
  return found;
}

async function remove(number) {
  if (confirm(`Delete job ${number} and its log? The weights of its run stay on the hub's machine.`)) return ask("DELETE", `api/jobs/${number}`);
}

function places(job) {
  const made = element("td", whole(job.devices.length));
  made.className = "number";
  const held = job.devices.filter((device) => device.layers.length);
  made.title = held.map((device) => `${device.name}: ${device.layers.join(", ")}`).join("\n");
  if (job.missing) made.append(element("span", ` (${whole(job.missing)} missing)`, "quiet"));
  return made;
}

// The heads of columns, which a narrow page has in each cell.
export function labelled(row, labels) {
  labels.forEach((label, column) => { if (label) row.cells[column].dataset.label = label; });
  return row;
}

function row(job) {
  const model = job.model_config.layer_sizes?.join("-") ?? job.model_config.task ?? job.model_config.type;
  const held = Object.entries(job.validation).map(([name, value]) => `${name} ${exact(value)}`).join(", ");
  const measured = [job.loss === null ? "" : `training loss ${exact(job.loss)}`, held && `held out: ${held}`];
  const cells = [
    `${job.job_id} · ${model}`, job.reason ? `${job.status}: ${job.reason}` : job.status,
    job.steps ? `${whole(job.step)} of ${whole(job.steps)}` : "", measured.filter(Boolean).join(" · "),
  ].map((text, column) => Object.assign(element("td", text), { className: column === 2 ? "number" : "" }));
  const last = element("td", "", "acts");
  last.append(...actions(job));
  for (const act of last.children) act.dataset.act = `${job.job_id} ${act.textContent}`;
  const made = element("tr", "");
  made.append(...cells, places(job), last);
  return labelled(made, ["Job", "", "Step", "", "Devices", ""]);
}

let shown = "";
let isPressed = false;
by("jobs").addEventListener("pointerdown", () => { isPressed = true; });
for (const over of ["pointerup", "pointercancel"]) addEventListener(over, () => { isPressed = false; });

async function look() {
  try {
    const { jobs } = await ask("GET", "api/jobs?details=1");
    if (by("line").textContent && followed) show(...followed).catch(() => {}); // whose stream ended with the hub
    if (by("note").textContent === by("line").textContent) say("note", "");
    say("line", "");
    by("no-jobs").hidden = jobs.length > 0;
    if (JSON.stringify(jobs) === shown || isPressed) return; // a button that is being pressed stays
    shown = JSON.stringify(jobs);
    dispatchEvent(new CustomEvent("jobs", { detail: jobs }));
    const focused = document.activeElement?.dataset.act;
    by("jobs").tBodies[0].replaceChildren(...jobs.reverse().map(row));
    if (focused) by("jobs").querySelector(`[data-act="${focused}"]`)?.focus({ preventScroll: true });
  } catch (error) {
    say("line", error.message);
  }
}

let following = null;
let followed = null; // the log that is shown: its path and title

const logOf = (number) => `api/jobs/${number}/log?follow=1`;

export const follow = (number) => show(logOf(number), `Log of job ${number}`);

export function openLog(path, title) {
  by("log").scrollIntoView({ block: "nearest" });
  return show(path, title);
}

async function show(path, title) {
  following?.abort();
  following = new AbortController();
  followed = [path, title];
  by("log-title").textContent = title;
  by("log").textContent = "";
  const answer = await fetch(path, { signal: following.signal });
  if (!answer.ok) by("log").textContent = await refusal(answer);
  else read(answer.body.pipeThrough(new TextDecoderStream()).getReader()).catch(() => {});
}

async function read(reader) {
  for (let { done, value } = await reader.read(); !done; { done, value } = await reader.read()) {
    const log = by("log");
    const isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 30; // whoever reads further up stays there
    log.textContent = (log.textContent + value).slice(-SHOWN);
    if (isAtEnd) log.scrollTop = log.scrollHeight;
  }
}

const batch = () => (by("batch").valueAsNumber > 0 ? { batch_size: by("batch").valueAsNumber } : {});
const FORMS = {
  digits: () => ({
    model_config: { layer_sizes: by("layers").value.split(",").map(Number) },
    dataset_config: { name: by("images").value, ...batch() },
  }),
  text: () => ({ model_config: { type: "transformer" }, dataset_config: { source: by("source").value, ...batch() } }),
  task: () => ({ model_config: { type: "task", task: `${by("file").value}:${by("name").value}` } }),
};

export const asked = () => FORMS[by("what").value]();

by("what").addEventListener("change", () => {
  const what = by("what").value;
  by("layers-field").hidden = by("images-field").hidden = what !== "digits";
  by("batch-field").hidden = what === "task";
  by("source-field").hidden = what !== "text";
  by("task-field").hidden = by("name-field").hidden = what !== "task";
});
by("new").addEventListener("submit", (event) => {
  event.preventDefault();
  said(() => ask("POST", "api/jobs", asked()))();
});

addEventListener("hashchange", () => location.reload()); // of a token

// The log's stream and downloads send no header: a cookie lets them in, where a token is needed.
if (sessionStorage.getItem(KEY)) await ask("POST", "api/session").catch(() => {});
const files = await ask("GET", "api/files").catch(() => ({ data: [], tasks: [] }));
const options = (names) => names.map((name) => Object.assign(element("option", name), { value: name }));
by("source").replaceChildren(...options(files.data));
by("file").replaceChildren(...options(files.tasks));
await look();
setInterval(look, 2000);
