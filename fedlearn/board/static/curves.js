// The learning curve with its switches, and the small charts of volunteers, throughput and bytes.

import { Chart, colour } from "./chart.js";
import { bytes, compact, element, exact, whole, words } from "./format.js";

const MAX_RUNS = 6;
const by = (id) => document.getElementById(id);

// Exponential mean as far as the slider says, without a start that is drawn to zero.
function smoothed(values, share) {
  let [mean, weight] = [0, 0];
  return values.map((value) => {
    if (value == null) return weight ? mean / weight : null;
    mean = share * mean + (1 - share) * value;
    weight = share * weight + (1 - share);
    return mean / weight;
  });
}

export class Curves {
  constructor(store, overlaid) {
    this.store = store;
    this.overlaid = overlaid;
    this.names = [];
    this.unit = "work";
    this.baselines = {};
    this.chart = new Chart(by("curve"), {
      formatX: compact, formatY: (value) => String(+value.toPrecision(4)), onPoint: (found) => this.read(found),
    });
    const small = { compactLayout: true, formatX: compact };
    this.volunteers = new Chart(by("chart-volunteers"), { ...small, formatY: compact });
    this.work = new Chart(by("chart-work"), { ...small, formatY: compact });
    this.bytes = new Chart(by("chart-bytes"), { ...small, formatY: bytes });
    for (const id of ["figure", "smooth", "log"]) by(id).addEventListener("input", () => this.draw());
    this.axisChoices();
  }

  axisChoices() {
    for (const [value, text] of [["step", "Steps"], ["seconds", "Seconds"], ["work", "Work"]]) {
      const label = element("label");
      const input = element("input");
      Object.assign(input, { type: "radio", name: "axis", value, checked: value === "step" });
      input.addEventListener("change", () => this.draw());
      label.append(input, element("span", text));
      by("axis").append(label);
    }
  }

  get axis() {
    return document.querySelector("input[name=axis]:checked").value;
  }

  setUnit(unit) {
    if (!unit) return;
    this.unit = `trial-${unit}`;
    by("axis").querySelector("label:last-of-type span").textContent = `Trial-${unit}`;
    by("work-caption").textContent = `Trial-${unit} a second`;
  }

  // The selected run first; checkboxes for the others.
  setRuns(selected, all) {
    this.names = [selected, ...this.names.slice(1).filter((name) => name !== selected && all.some((run) => run.name === name))];
    const others = all.filter((run) => run.name !== selected).slice(0, 60);
    by("overlay").hidden = others.length === 0;
    by("overlay").replaceChildren(by("overlay").querySelector("legend"), ...others.map((run) => this.choice(run)));
    this.tints();
  }

  choice(run) {
    const label = element("label");
    const input = element("input");
    Object.assign(input, { type: "checkbox", value: run.name, checked: this.names.includes(run.name) });
    input.addEventListener("change", () => {
      if (input.checked && this.names.length >= MAX_RUNS) input.checked = false;
      this.names = this.names.filter((name) => name !== run.name);
      if (input.checked) this.names.push(run.name);
      this.tints();
      this.overlaid(this.names);
    });
    label.append(input, element("span", "", "swatch"), element("span", `${run.name} ${run.task}`));
    return label;
  }

  tints() {
    for (const label of by("overlay").querySelectorAll("label")) {
      const place = this.names.indexOf(label.querySelector("input").value);
      label.querySelector(".swatch").style.setProperty("--swatch", place < 0 ? "" : `var(--series-${place + 1})`);
    }
  }

  // What can be drawn: the loss as people read it, the loss itself, the variance that control variates left, and other
  // figures on held-out data.
  figures() {
    const history = this.store.get(this.names[0]);
    const names = history?.shown && history.shown !== "loss" ? [history.shown, "loss"] : ["loss"];
    if (history?.curve.mean.variance_left.some((share) => share != null)) names.push("variance_left");
    for (const { figures } of history?.validation ?? []) for (const name of Object.keys(figures)) if (!names.includes(name)) names.push(name);
    const chosen = by("figure").value;
    if (by("figure").children.length !== names.length || [...by("figure").children].some((option, at) => option.value !== names[at])) {
      by("figure").replaceChildren(...names.map((name) => Object.assign(element("option", words(name)), { value: name })));
      by("figure").value = names.includes(chosen) ? chosen : names[0];
    }
    return by("figure").value;
  }

  draw() {
    const figure = this.figures();
    const share = Number(by("smooth").value) / 100;
    const series = this.names.flatMap((name, place) => this.seriesOf(name, place, figure, share));
    const first = this.store.get(this.names[0]);
    const lines = figure === first?.shown ? Object.entries(this.baselines).map(([label, y]) => ({ label, y })) : [];
    this.chart.show({ series, lines: series.length ? lines : [], log: by("log").checked });
    const last = series[0] && (series[0].smooth ?? series[0].y).at(-1);
    const over = this.axis === "work" ? this.unit : `${this.axis}${this.axis === "step" ? "s" : ""}`;
    by("curve").setAttribute("aria-label", `${words(figure)} over ${over}${last == null ? "" : `, now ${exact(last)}`}; arrow keys read it`);
    if (first) this.drawSmall(first);
  }

  seriesOf(name, place, figure, share) {
    const history = this.store.get(name);
    if (!history) return [];
    const [axis, tint, found] = [this.axis, colour(`series-${place + 1}`), []];
    const column = ["loss", "variance_left"].includes(figure) ? figure : figure === history.shown ? "shown" : null;
    const label = this.names.length > 1 ? `run ${name}` : "members";
    const { axes, mean, least, greatest } = history.curve;
    if (column && axes.step.length) {
      found.push({
        label, tint, x: axes[axis], y: mean[column], smooth: share ? smoothed(mean[column], share) : undefined,
        least: least[column], greatest: greatest[column],
      });
    }
    const held = history.validation.filter((look) => look.figures[figure] != null);
    if (held.length) {
      found.push({
        label: `${this.names.length > 1 ? `run ${name}, ` : ""}held out`, tint: column && this.names.length === 1 ? colour("series-2") : tint,
        x: held.map((look) => look[axis]), y: held.map((look) => look.figures[figure]), points: true, dashed: this.names.length > 1,
      });
    }
    return found;
  }

  drawSmall({ curve: { axes, mean, least, greatest } }) {
    const [x, tint] = [axes[this.axis], colour("series-1")];
    const band = (name) => ({ x, y: mean[name], least: least[name], greatest: greatest[name], tint });
    this.volunteers.show({ series: [band("volunteers")], fromZero: true });
    this.work.show({ series: [{ ...band("work_per_s"), smooth: smoothed(mean.work_per_s, 0.8) }], fromZero: true, clip: true });
    const lines = [["bytes_in", "series-1"], ["bytes_out", "series-2"]];
    this.bytes.show({
      series: lines.map(([name, key]) => ({ x, y: mean[name], smooth: smoothed(mean[name], 0.8), tint: colour(key) })), fromZero: true, clip: true,
    });
  }

  read(found) {
    // Spoken only to whoever moves along the curve: the newest values change every second.
    by("readout").setAttribute("aria-live", found ? "polite" : "off");
    if (!found) {
      const series = this.chart.content.series;
      by("readout").textContent = series.map((each) => `${each.label} ${exact((each.smooth ?? each.y).at(-1))}`).join("  ·  ");
      return;
    }
    const at = { step: "step", seconds: "second", work: this.unit }[this.axis];
    by("readout").textContent = found.map((each) => `${each.label}: ${exact(each.smooth)} at ${at} ${whole(each.x)}`).join("  ·  ");
  }
}
