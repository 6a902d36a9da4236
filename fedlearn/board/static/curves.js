// The learning curve with its switches, and the small charts of volunteers, throughput and bytes.

import { Chart, colour } from "./chart.js";
import { by, bytes, compact, element, exact, say, whole, words } from "./format.js";

const MAX_RUNS = 6;
const MAX_DIFFERENCES = 4;
const LEAST_SPAN = 30; // of the first to the least value, for powers of ten (fedlearn/terminal/curve.py has the same)

function through(of, values) {
  return values.map((value) => (value == null ? null : of(value)));
}

// Whether a curve falls so far that only powers of ten show it all, and no other reaches zero.
function fallByPowers(curves) {
  const known = curves.map((values) => values.filter((value) => value != null));
  const leasts = known.map((values) => values.reduce((low, value) => Math.min(low, value), Infinity));
  return leasts.every((least) => least > 0) && known.some((values, at) => values[0] >= LEAST_SPAN * leasts[at]);
}

// The height of a line through the neighbours on both sides, which count by share ** distance: a mean of what came
// before would lie above a curve that falls (fedlearn/runs/plot.py does the same).
function smoothed(values, share) {
  const reach = Math.ceil(Math.log(0.01) / Math.log(share));
  const weights = Array.from({ length: reach + 1 }, (_, away) => share ** away);
  return values.map((_, place) => {
    let [total, tilt, spread, sum, moment] = [0, 0, 0, 0, 0];
    for (let at = Math.max(place - reach, 0); at <= Math.min(place + reach, values.length - 1); at += 1) {
      if (values[at] == null) continue;
      const [away, weight] = [at - place, weights[Math.abs(at - place)]];
      total += weight;
      tilt += weight * away;
      spread += weight * away * away;
      sum += weight * values[at];
      moment += weight * away * values[at];
    }
    const size = total * spread - tilt * tilt;
    return size > 1e-9 ? (spread * sum - tilt * moment) / size : total ? sum / total : null;
  });
}

// What tells a run from the others: its task, and settings in which the listed runs of this task differ.
export function titleOf(run, runs) {
  const differing = Object.keys(run.settings ?? {}).filter((key) => 
    runs.some((other) => other.task === run.task && other.settings?.[key] !== run.settings[key]));
  return [run.task, ...differing.slice(0, MAX_DIFFERENCES).map((key) => `${words(key)} ${run.settings[key] || "–"}`)].join(", ");
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
      onZoom: (part) => { by("whole").hidden = !part; },
    });
    const small = { compactLayout: true, formatX: compact };
    this.volunteers = new Chart(by("chart-volunteers"), { ...small, formatY: (value) => (Number.isInteger(value) ? compact(value) : "") });
    this.work = new Chart(by("chart-work"), { ...small, formatY: compact });
    this.bytes = new Chart(by("chart-bytes"), { ...small, formatY: bytes });
    for (const id of ["figure", "smooth", "log"]) by(id).addEventListener("input", () => this.draw());
    by("log").addEventListener("input", () => this.chart.zoom(null));
    by("whole").addEventListener("click", () => {
      this.chart.zoom(null);
      by("curve").focus();
    });
    this.axisChoices();
  }

  axisChoices() {
    for (const [value, text] of [["step", "Steps"], ["seconds", "Seconds"], ["work", "Work"]]) {
      const label = element("label");
      const input = element("input");
      Object.assign(input, { type: "radio", name: "axis", value, checked: value === "step" });
      input.addEventListener("change", () => {
        this.chart.zoom(null);
        this.draw();
      });
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
    if (selected !== this.names[0]) this.chart.zoom(null);
    this.all = all;
    this.names = [selected, ...this.names.slice(1).filter((name) => name !== selected && all.some((run) => run.name === name))];
    const others = all.filter((run) => run.name !== selected).slice(0, 60);
    by("overlay").hidden = others.length === 0;
    const focused = document.activeElement?.closest("#overlay input")?.value;
    by("overlay").replaceChildren(by("overlay").querySelector("legend"), ...others.map((run) => this.choice(run)));
    if (focused) by("overlay").querySelector(`[value="${focused}"]`)?.focus({ preventScroll: true });
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
    label.append(input, element("span", "", "swatch"), element("span", `${run.name} ${titleOf(run, this.all)}`));
    return label;
  }

  tints() {
    for (const label of by("overlay").querySelectorAll("label")) {
      const place = this.names.indexOf(label.querySelector("input").value);
      label.querySelector(".swatch").style.setProperty("--swatch", place < 0 ? "" : `var(--series-${place + 1})`);
    }
  }

  // What can be drawn: the loss as people read it, the loss itself, what else steps measured, and figures on held-out data.
  figures() {
    const history = this.store.get(this.names[0]);
    const names = history?.shown && history.shown !== "loss" ? [history.shown, "loss"] : ["loss"];
    names.push(...Object.keys(history?.figures ?? {}).filter((name) => history.curve.mean[name].some((value) => value != null)));
    for (const { figures } of history?.validation ?? []) for (const name of Object.keys(figures)) if (!names.includes(name)) names.push(name);
    const chosen = by("figure").value;
    if (by("figure").children.length !== names.length || [...by("figure").children].some((option, at) => option.value !== names[at])) {
      by("figure").replaceChildren(...names.map((name) => Object.assign(element("option", history?.figures[name] ?? words(name)), { value: name })));
      by("figure").value = names.includes(chosen) ? chosen : names[0];
    }
    return by("figure").value;
  }

  draw() {
    const figure = this.figures();
    const share = Number(by("smooth").value) / 100;
    const series = this.names.flatMap((name, place) => this.seriesOf(name, place, figure));
    const logY = fallByPowers(series.map(({ y }) => y));
    for (const one of share ? series.filter(({ points }) => !points) : []) {
      one.smooth = logY ? through(Math.exp, smoothed(through(Math.log, one.y), share)) : smoothed(one.y, share);
    }
    const first = this.store.get(this.names[0]);
    const lines = figure === first?.shown ? Object.entries(this.baselines).map(([label, y]) => ({ label, y })) : [];
    const over = this.axis === "work" ? this.unit : `${this.axis}${this.axis === "step" ? "s" : ""}`;
    const labelX = { step: "step", seconds: "seconds of training", work: this.unit }[this.axis];
    this.chart.show({ series, lines: series.length ? lines : [], log: by("log").checked, logY, labelX, labelY: words(figure) });
    this.missing(figure);
    const last = series[0] && (series[0].smooth ?? series[0].y).at(-1);
    by("curve").setAttribute("aria-label", `${words(figure)} over ${over}${last == null ? "" : `, now ${exact(last)}`}; arrow keys read it`);
    if (first) this.drawSmall(first, labelX);
  }

  // Runs that were asked for and measure something else.
  missing(figure) {
    const sentences = this.names.flatMap((name) => {
      const history = this.store.get(name);
      const has = !history || !history.curve.axes.step.length || this.columnOf(history, figure)
        || history.validation.some((look) => look.figures[figure] != null);
      return has ? [] : [`Run ${name} is not drawn: it measures ${words(history.shown || "loss")}, no ${words(figure)}; the figure “loss” is common to all.`];
    });
    say("missing", sentences.join(" "));
  }

  // The column of the curve that a figure is, null for one that is only measured on held-out data.
  columnOf(history, figure) {
    return figure === "loss" || figure in history.figures ? figure : figure === history.shown ? "shown" : null;
  }

  seriesOf(name, place, figure) {
    const history = this.store.get(name);
    if (!history) return [];
    const [axis, tint, found] = [this.axis, colour(`series-${place + 1}`), []];
    const column = this.columnOf(history, figure);
    const label = this.names.length > 1 ? `run ${name}` : "members";
    const { axes, mean, least, greatest } = history.curve;
    if (column && axes.step.length) {
      found.push({
        label, tint, mark: `series-${place + 1}`, x: axes[axis], y: mean[column],
        least: least[column], greatest: greatest[column],
      });
    }
    const held = history.validation.filter((look) => look.figures[figure] != null);
    if (held.length) {
      const isOther = column && this.names.length === 1;
      found.push({
        label: `${this.names.length > 1 ? `run ${name}, ` : ""}held out`, tint: isOther ? colour("series-2") : tint,
        mark: `dot series-${isOther ? 2 : place + 1}`,
        x: held.map((look) => look[axis]), y: held.map((look) => look.figures[figure]), points: true, dashed: this.names.length > 1,
      });
    }
    return found;
  }

  drawSmall({ curve: { axes, mean, least, greatest } }, labelX) {
    const [x, tint] = [axes[this.axis], colour("series-1")];
    const band = (name) => ({ x, y: mean[name], least: least[name], greatest: greatest[name], tint });
    this.volunteers.show({ series: [band("volunteers")], labelX, fromZero: true });
    this.work.show({ series: [{ ...band("work_per_s"), smooth: smoothed(mean.work_per_s, 0.8) }], labelX, fromZero: true, clip: true });
    const lines = [["bytes_in", "series-1"], ["bytes_out", "series-2"]];
    this.bytes.show({
      series: lines.map(([name, key]) => ({ x, y: mean[name], smooth: smoothed(mean[name], 0.8), tint: colour(key) })), labelX, fromZero: true, clip: true,
    });
  }

  read(found) {
    // Spoken only to whoever moves along the curve: the newest values change every second.
    by("readout").setAttribute("aria-live", found ? "polite" : "off");
    const at = { step: "step", seconds: "second", work: this.unit }[this.axis];
    const entries = found
      ? found.map(({ label, mark, smooth, x }) => [mark, `${label}: ${exact(smooth)} at ${at} ${whole(x)}`])
      : this.chart.content.series.map(({ label, mark, smooth, y }) => [mark, `${label} ${exact((smooth ?? y).at(-1))}`]);
    by("readout").replaceChildren(...entries.map(([mark, text]) => {
      const entry = element("span");
      entry.append(element("span", "", `swatch ${mark}`), text);
      return entry;
    }));
  }
}
