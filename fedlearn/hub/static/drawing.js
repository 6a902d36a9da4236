// A digit that is drawn, and what a job's network takes it for.

import { by, element } from "./format.js";
import { ask } from "./jobs.js";

const SIDE = 56; // the images of 28 and of 8 pixels a side are means of its squares
const INK = 40; // as large as MNIST's digits are: 20 of 28
const canvas = by("canvas");
const pen = canvas.getContext("2d", { willReadFrequently: true });
let at = null;

function clear() {
  pen.fillStyle = "black";
  pen.fillRect(0, 0, canvas.width, canvas.height);
  by("classes").replaceChildren();
}

function place(event) {
  const box = canvas.getBoundingClientRect();
  return [((event.clientX - box.left) * canvas.width) / box.width, ((event.clientY - box.top) * canvas.height) / box.height];
}

function draw(event) {
  if (!at) return;
  const next = place(event);
  Object.assign(pen, { strokeStyle: "white", lineWidth: 22, lineCap: "round" });
  pen.beginPath();
  pen.moveTo(...at);
  pen.lineTo(...next);
  pen.stroke();
  at = next;
}

// The square around what was drawn, scaled and centred as the images that are learned from.
function pixels() {
  const { width, height } = canvas;
  const { data } = pen.getImageData(0, 0, width, height);
  let [left, top, right, bottom] = [width, height, 0, 0];
  for (let y = 0; y < height; y++) for (let x = 0; x < width; x++) if (data[4 * (y * width + x)] > 64) {
    [left, right, top, bottom] = [Math.min(left, x), Math.max(right, x + 1), Math.min(top, y), Math.max(bottom, y + 1)];
  }
  if (right <= left) return null;
  const small = Object.assign(document.createElement("canvas"), { width: SIDE, height: SIDE });
  const to = small.getContext("2d");
  to.fillRect(0, 0, SIDE, SIDE);
  const scale = INK / Math.max(right - left, bottom - top);
  const [w, h] = [(right - left) * scale, (bottom - top) * scale];
  to.drawImage(canvas, left, top, right - left, bottom - top, (SIDE - w) / 2, (SIDE - h) / 2, w, h);
  const image = to.getImageData(0, 0, SIDE, SIDE).data;
  return Array.from({ length: SIDE * SIDE }, (_, i) => image[4 * i] / 255);
}

async function recognize() {
  const image = pixels();
  if (!image || !by("reader").value) return;
  try {
    const found = await ask("POST", `api/jobs/${by("reader").value}/recognize`, { pixels: image });
    by("classes").replaceChildren(...found.probabilities.map((share, digit) => {
      const line = element("li", `${(100 * share).toFixed(1)} %`, digit === found.class ? "best" : "");
      line.style.setProperty("--share", share);
      return line;
    }));
  } catch (error) {
    by("classes").replaceChildren(element("li", error.message));
  }
}

canvas.addEventListener("pointerdown", (event) => { at = place(event); canvas.setPointerCapture(event.pointerId); draw(event); });
canvas.addEventListener("pointermove", draw);
canvas.addEventListener("pointerup", () => { at = null; recognize(); });
by("clear").addEventListener("click", clear);
by("reader").addEventListener("change", recognize);

function offer(jobs) {
  const readers = jobs.filter((job) => job.is_classifier && job.run);
  by("drawing").hidden = !readers.length;
  const chosen = by("reader").value;
  by("reader").replaceChildren(...readers.map((job) => Object.assign(element("option", job.job_id), { value: job.job_id })));
  if (readers.some((job) => job.job_id === chosen)) by("reader").value = chosen;
}

clear();
addEventListener("jobs", ({ detail }) => offer(detail));
offer((await ask("GET", "api/jobs").catch(() => ({ jobs: [] }))).jobs); // jobs.js showed its first ones before this
