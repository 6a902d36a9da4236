// Lines on a canvas, with axes, bands between least and greatest values, and a crosshair for pointer and keyboard.

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function ticks(low, high, wanted) {
  const rough = (high - low) / Math.max(wanted, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough * (1 - 1e-9));
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) found.push(+value.toPrecision(12));
  return found;
}

// Powers of ten, with twice and five times them where there are few.
function logTicks(low, high) {
  const factors = Math.log10(high / low) < 3 ? [1, 2, 5] : [1];
  const found = [];
  for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power += 1) found.push(...factors.map((factor) => factor * 10 ** power));
  return found.filter((value) => value >= low && value <= high);
}

const DRAG_PX = 8;

// series: {x, y, smooth, least, greatest, label, tint, points, dashed}; lines: {y, label}; log, logY: whether an axis
// goes by powers of ten; labelX, labelY: what the axes measure. With `onZoom` a part of the axis may be chosen: by
// dragging, or by + and - around the crosshair.
export class Chart {
  constructor(canvas, { formatX = String, formatY = String, compactLayout = false, onPoint = () => {}, onZoom = null } = {}) {
    Object.assign(this, { canvas, formatX, formatY, compactLayout, onPoint, onZoom });
    this.content = { series: [], lines: [], log: false };
    this.place = null;
    this.zoomed = null; // the part of the axis that is shown, where it is not all of it
    this.dragged = null; // where a drag began
    new ResizeObserver(() => this.request()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.request());
    canvas.addEventListener("pointermove", (event) => this.point(event.offsetX));
    canvas.addEventListener("pointerleave", () => this.point(null));
    canvas.addEventListener("blur", () => this.point(null));
    canvas.addEventListener("keydown", (event) => this.key(event));
    if (onZoom) this.followDrags();
  }

  show(content) {
    this.content = { lines: [], log: false, ...content };
    this.request();
  }

  request() {
    this.asked ??= requestAnimationFrame(() => {
      this.asked = undefined;
      this.draw();
    });
  }

  point(place) {
    this.place = place;
    this.request();
  }

  followDrags() {
    const { canvas } = this;
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button || !this.box) return;
      this.dragged = event.offsetX;
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointerup", (event) => {
      const began = this.dragged;
      this.dragged = null;
      if (began != null && Math.abs(event.offsetX - began) >= DRAG_PX) this.zoomTo(began, event.offsetX);
      else this.request();
    });
    canvas.addEventListener("pointercancel", () => {
      this.dragged = null;
      this.request();
    });
    canvas.addEventListener("dblclick", () => this.zoom(null));
  }

  // The part between two places on the canvas.
  zoomTo(one, other) {
    const { left, right } = this.box;
    const [from, to] = [Math.min(one, other), Math.max(one, other)].map((place) => Math.min(Math.max(place, left), right));
    if (to > from) this.zoom([this.fromX(from), this.fromX(to)]);
  }

  zoom(part) {
    this.zoomed = part;
    this.request();
    this.onZoom(part);
  }

  zoomKey(key) {
    if (!this.onZoom || !this.box || !["+", "=", "-", "Escape"].includes(key)) return false;
    if (key === "Escape") this.zoom(null);
    else if (key !== "-") {
      const [{ left, right }, quarter] = [this.box, (this.box.right - this.box.left) / 4];
      const middle = Math.min(Math.max(this.place ?? right, left + quarter), right - quarter);
      this.zoomTo(middle - quarter, middle + quarter);
    } else if (this.zoomed) {
      const [low, high] = this.zoomed;
      const [least, most] = this.extent();
      const wider = [Math.max(low - (high - low) / 2, least), Math.min(high + (high - low) / 2, most)];
      this.zoom(wider[0] <= least && wider[1] >= most ? null : wider);
    }
    return true;
  }

  // Where the axis begins and ends when all is shown.
  extent() {
    let [least, most] = [Infinity, -Infinity];
    for (const { x } of this.content.series) {
      for (const value of x) if (!this.content.log || value > 0) [least, most] = [Math.min(least, value), Math.max(most, value)];
    }
    return [least, most];
  }

  key(event) {
    if (!event.ctrlKey && !event.metaKey && this.zoomKey(event.key)) {
      event.preventDefault();
      return;
    }
    const by = { ArrowLeft: -8, ArrowRight: 8, PageUp: 80, PageDown: -80 }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    const { left, right } = this.box;
    this.point(Math.min(Math.max((this.place ?? right) + by, left), right));
  }

  ranges() {
    const drawn = this.content.series.filter((series) => series.x.length);
    let [lowX, highX] = this.zoomed ?? this.extent();
    let [lowY, highY] = [Infinity, -Infinity];
    for (const { x, y, smooth } of drawn) {
      for (let at = 0; at < x.length; at += 1) {
        if ((this.content.log && x[at] <= 0) || x[at] < lowX || x[at] > highX) continue;
        const value = (smooth ?? y)[at];
        if (value == null) continue;
        lowY = Math.min(lowY, value);
        highY = Math.max(highY, value);
      }
    }
    if (this.content.clip) highY = this.usual(drawn);
    for (const { y } of this.zoomed ? [] : this.content.lines) [lowY, highY] = [Math.min(lowY, y), Math.max(highY, y)];
    if (!(lowX <= highX) || !(lowY <= highY)) return null;
    if (this.content.fromZero) lowY = Math.min(0, lowY);
    if (lowX === highX) highX += 1;
    if (this.content.logY) {
      const factor = Math.max((highY / lowY) ** 0.06, 1.01);
      return { lowX, highX, lowY: lowY / factor, highY: highY * factor };
    }
    const room = (highY - lowY || Math.abs(highY) || 1) * 0.06;
    return { lowX, highX, lowY: this.content.fromZero ? lowY : lowY - room, highY: highY + room };
  }

  // What few values exceed: the weights that a newcomer is sent would leave the rest flat.
  usual(drawn) {
    const values = drawn.flatMap(({ y }) => y.filter((value) => value != null)).sort((one, other) => one - other);
    const most = values[Math.floor(values.length * 0.98)];
    return Math.min(values.at(-1), most * 1.3 || values.at(-1));
  }

  draw() {
    const { canvas, content } = this;
    const [width, height, ratio] = [canvas.clientWidth, canvas.clientHeight, devicePixelRatio || 1];
    if (!width) return;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    const ranges = this.ranges();
    canvas.dataset.points = ranges ? String(content.series.reduce((sum, series) => sum + series.x.length, 0)) : "0";
    if (!ranges) {
      pen.fillStyle = colour("soft");
      pen.fillText(this.zoomed ? "Nothing in this part." : "Nothing yet.", 4, 20);
      return;
    }
    const { lowY, highY } = ranges;
    const yTicks = content.logY && highY > 10 * lowY ? logTicks(lowY, highY) : ticks(lowY, highY, this.compactLayout ? 3 : 6);
    canvas.dataset.powers = String(Boolean(content.logY));
    const left = Math.max(...yTicks.map((value) => pen.measureText(this.formatY(value)).width)) + 10;
    this.box = { left, right: width - 6, top: content.labelY ? 24 : this.compactLayout ? 8 : 18, bottom: height - (content.labelX ? 38 : 22) };
    this.scale(ranges);
    this.axes(pen, yTicks, ranges);
    pen.save();
    pen.beginPath();
    pen.rect(left, this.box.top - (content.labelY ? 6 : 0), this.box.right - left + 2, this.box.bottom - this.box.top + 7);
    pen.clip();
    for (const series of content.series) this.series(pen, series);
    pen.restore();
    this.labels(pen);
    this.crosshair(pen);
  }

  scale({ lowX, highX, lowY, highY }) {
    const { left, right, top, bottom } = this.box;
    const same = (value) => value;
    const [of, back] = this.content.log ? [Math.log, Math.exp] : [same, same];
    const height = this.content.logY ? (value) => Math.log(Math.max(value, lowY / 10)) : same;
    const [from, to] = [of(lowX), of(highX)];
    this.toX = (value) => left + ((of(value) - from) / (to - from)) * (right - left);
    this.fromX = (place) => back(from + ((place - left) / (right - left)) * (to - from));
    this.toY = (value) => bottom - ((height(value) - height(lowY)) / (height(highY) - height(lowY))) * (bottom - top);
  }

  axes(pen, yTicks, { lowX, highX }) {
    const { left, right, bottom } = this.box;
    pen.strokeStyle = colour("rule");
    pen.fillStyle = colour("soft");
    pen.lineWidth = 1;
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (const value of yTicks) {
      const y = Math.round(this.toY(value)) + 0.5;
      pen.beginPath();
      pen.moveTo(left, y);
      pen.lineTo(right, y);
      pen.stroke();
      pen.fillText(this.formatY(value), left - 8, y);
    }
    pen.textAlign = "center";
    pen.textBaseline = "top";
    const places = this.content.log ? logTicks(lowX, highX) : ticks(lowX, highX, Math.max(Math.floor((right - left) / 60), 3));
    let [end, written] = [-Infinity, 0];
    for (const value of places) {
      const text = this.formatX(value);
      const half = pen.measureText(text).width / 2;
      const middle = Math.min(Math.max(this.toX(value), left + half), right - half);
      if (middle - half < end + 8) continue;
      pen.fillText(text, middle, bottom + 7);
      [end, written] = [middle + half, written + 1];
    }
    this.canvas.dataset.ticks = String(written);
    if (this.content.labelX) pen.fillText(this.content.labelX, (left + right) / 2, bottom + 23);
    pen.textAlign = "left";
    if (this.content.labelY) pen.fillText(this.content.labelY, 0, 0);
  }

  path(pen, x, values) {
    pen.beginPath();
    let isDown = false;
    for (let at = 0; at < x.length; at += 1) {
      if (values[at] == null || (this.content.log && x[at] <= 0)) {
        isDown = false;
        continue;
      }
      if (isDown) pen.lineTo(this.toX(x[at]), this.toY(values[at]));
      else pen.moveTo(this.toX(x[at]), this.toY(values[at]));
      isDown = true;
    }
  }

  series(pen, { x, y, smooth, least, greatest, tint, points, dashed }) {
    pen.strokeStyle = pen.fillStyle = tint;
    pen.lineJoin = "round";
    if (least && x.length > 1) {
      pen.globalAlpha = 0.13;
      pen.beginPath();
      const shown = x.map((_, at) => at).filter((at) => least[at] != null && !(this.content.log && x[at] <= 0));
      for (const at of shown) pen.lineTo(this.toX(x[at]), this.toY(greatest[at]));
      for (const at of shown.reverse()) pen.lineTo(this.toX(x[at]), this.toY(least[at]));
      pen.fill();
    }
    if (smooth) {
      pen.globalAlpha = 0.3;
      pen.lineWidth = 1;
      this.path(pen, x, y);
      pen.stroke();
    }
    pen.globalAlpha = 1;
    pen.lineWidth = 2;
    pen.setLineDash(dashed ? [5, 4] : []);
    this.path(pen, x, smooth ?? y);
    pen.stroke();
    pen.setLineDash([]);
    if (points) {
      const every = Math.ceil(x.length / 60);
      for (let at = 0; at < x.length; at += every) {
        if (y[at] == null || (this.content.log && x[at] <= 0)) continue;
        pen.beginPath();
        pen.arc(this.toX(x[at]), this.toY(y[at]), 2.6, 0, 7);
        pen.fill();
      }
    }
  }

  labels(pen) {
    const { left, right } = this.box;
    pen.textBaseline = "bottom";
    pen.textAlign = "left";
    let [before, start] = [Infinity, left + 6];
    for (const { y, label } of [...this.content.lines].sort((one, other) => other.y - one.y)) {
      const at = Math.round(this.toY(y)) + 0.5;
      if (at < this.box.top || at > this.box.bottom) continue; // not in the part that is shown
      // Labels that would lie on each other stand side by side.
      start = Math.abs(at - before) < 14 ? start : left + 6;
      before = at;
      pen.strokeStyle = pen.fillStyle = colour("soft");
      pen.setLineDash([2, 4]);
      pen.beginPath();
      pen.moveTo(left, at);
      pen.lineTo(right, at);
      pen.stroke();
      pen.setLineDash([]);
      pen.fillText(label, start, at - 2);
      start += pen.measureText(label).width + 12;
    }
  }

  crosshair(pen) {
    if (this.place == null || this.place < this.box.left || this.place > this.box.right) {
      this.onPoint(null);
      return;
    }
    const found = [];
    for (const series of this.content.series) {
      let nearest = -1;
      for (let at = 0; at < series.x.length; at += 1) {
        const isNearer = nearest < 0 || Math.abs(this.toX(series.x[at]) - this.place) < Math.abs(this.toX(series.x[nearest]) - this.place);
        if (isNearer && series.y[at] != null) nearest = at;
      }
      if (nearest < 0) continue;
      const value = (series.smooth ?? series.y)[nearest];
      found.push({ label: series.label, mark: series.mark, x: series.x[nearest], y: series.y[nearest], smooth: value });
      pen.fillStyle = series.tint;
      pen.beginPath();
      pen.arc(this.toX(series.x[nearest]), this.toY(value), 4, 0, 7);
      pen.fill();
    }
    pen.strokeStyle = colour("soft");
    if (this.dragged != null) {
      pen.fillStyle = colour("soft");
      pen.globalAlpha = 0.15;
      pen.fillRect(this.dragged, this.box.top, this.place - this.dragged, this.box.bottom - this.box.top);
      pen.globalAlpha = 1;
    }
    pen.beginPath();
    pen.moveTo(Math.round(this.place) + 0.5, this.box.top);
    pen.lineTo(Math.round(this.place) + 0.5, this.box.bottom);
    pen.stroke();
    this.onPoint(found);
  }
}
