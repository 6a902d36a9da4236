// Devices to choose from, and a job that is reviewed and started in one go.

import { by, element } from "./format.js";
import { ask, asked, button, follow, labelled, openLog, said, training } from "./jobs.js";

const taken = new Set(); // numbers of the devices that are marked
let devices = [];

function mark(device) {
  const box = Object.assign(document.createElement("input"), {
    type: "checkbox", checked: taken.has(device.device_id), disabled: device.job_id !== null,
  });
  box.setAttribute("aria-label", `Take device ${device.device_id}`);
  box.addEventListener("change", () => taken[box.checked ? "add" : "delete"](device.device_id));
  const cell = element("td", "");
  cell.append(box);
  return cell;
}

function row(device) {
  const made = element("tr", "");
  const texts = [
    `${device.device_id} · ${device.name}`, device.port ? `${device.ip}:${device.port}` : device.ip,
    device.job_id ?? "idle", device.layers.join(", "), device.verbs.join(", "),
  ];
  const log = element("td", "");
  log.append(button("Log", () => openLog(`api/devices/${device.device_id}/log?follow=1`, `Log of device ${device.device_id}`)));
  made.append(mark(device), ...texts.map((text) => element("td", text)), log);
  return labelled(made, ["Take", "Device", "Address", "Job", "Holds", "Verbs", ""]);
}

async function look() {
  const found = await ask("GET", "api/devices").catch(() => null); // of which jobs.js tells
  if (!found) return;
  by("no-devices").hidden = found.length > 0;
  if (JSON.stringify(found) === JSON.stringify(devices)) return;
  devices = found;
  for (const number of taken) if (!devices.some((device) => device.device_id === number)) taken.delete(number);
  by("devices").tBodies[0].replaceChildren(...devices.map(row));
}

const chosen = () => devices.filter((device) => (taken.size ? taken.has(device.device_id) : device.job_id === null));

by("review").addEventListener("click", () => {
  const { model_config: model, dataset_config: data = {} } = asked();
  const { epochs, learning_rate: rate } = training();
  const facts = {
    Model: model.layer_sizes?.join("-") ?? model.task ?? model.type,
    Data: data.name ?? data.source ?? "the task's own",
    Batch: data.batch_size ?? "its own",
    Parallelism: by("parallelism").selectedOptions[0].textContent,
    Devices: chosen().map((device) => `${device.device_id} · ${device.name}`).join(", ") || "none yet",
    Epochs: epochs ?? "its own",
    "Learning rate": rate ?? "its own",
  };
  by("plan").replaceChildren(...Object.entries(facts).flatMap(([name, value]) => [element("dt", name), element("dd", String(value))]));
  by("reviewed").hidden = false;
});
const unreviewed = () => { by("reviewed").hidden = true; };
by("back").addEventListener("click", unreviewed);
by("new").addEventListener("input", unreviewed); // what is started is what the form says

by("start").addEventListener("click", said(async () => {
  const body = asked();
  const made = await ask("POST", "api/jobs", body);
  const [told, number] = [[made], made.job_id];
  if (chosen().length || body.model_config.layer_sizes) {
    const split = by("parallelism").value === "split";
    const wanted = { ...(split && { split }), ...(taken.size && { devices: [...taken] }) };
    told.push(await ask("POST", `api/network/initialize/${number}`, wanted));
  }
  told.push(await ask("POST", `api/network/train/${number}`, training()));
  by("reviewed").hidden = true;
  taken.clear();
  follow(number);
  return { message: told.map(({ message }) => message).join("; ") };
}));

await look();
setInterval(look, 2000);
