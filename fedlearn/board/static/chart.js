// Lines on a canvas, with axes, bands between least and greatest values, and a crosshair for pointer and keyboard.

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function ticks(low, high, wanted) {
  const rough = (high - low) / Math.max(wanted, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) found.push(+value.toPrecision(12));
  return found;
}

function logTicks(low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power += 1) found.push(10 ** power);
  return found.filter((value) => value >= low);
}

// series: {x, y, least, greatest, colour, faint, points, axis}; lines: {y, label}.
export class Chart {
  constructor(canvas, { formatX = String, formatY = String, compactLayout = false, onPoint = () => {} } = {}) {
    Object.assign(this, { canvas, formatX, formatY, compactLayout, onPoint });
    this.content = { series: [], lines: [], log: false };
    this.place = null;
    new ResizeObserver(() => this.request()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.request());
    canvas.addEventListener("pointermove", (event) => this.point(event.offsetX));
    canvas.addEventListener("pointerleave", () => this.point(null));
    canvas.addEventListener("blur", () => this.point(null));
    canvas.addEventListener("keydown", (event) => this.key(event));
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

  key(event) {
    const by = { ArrowLeft: -8, ArrowRight: 8, PageUp: 80, PageDown: -80 }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    const { left, right } = this.box;
    this.point(Math.min(Math.max((this.place ?? right) + by, left), right));
  }

  ranges() {
    const drawn = this.content.series.filter((series) => series.x.length);
    let [lowX, highX, lowY, highY] = [Infinity, -Infinity, Infinity, -Infinity];
    for (const { x, y, smooth } of drawn) {
      for (let at = 0; at < x.length; at += 1) {
        if (this.content.log && x[at] <= 0) continue;
        lowX = Math.min(lowX, x[at]);
        highX = Math.max(highX, x[at]);
        const value = (smooth ?? y)[at];
        if (value == null) continue;
        lowY = Math.min(lowY, value);
        highY = Math.max(highY, value);
      }
    }
    if (this.content.clip) highY = this.usual(drawn);
    for (const { y } of this.content.lines) [lowY, highY] = [Math.min(lowY, y), Math.max(highY, y)];
    if (!(lowX <= highX) || !(lowY <= highY)) return null;
    if (this.content.fromZero) lowY = Math.min(0, lowY);
    if (lowX === highX) highX += 1;
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
      pen.fillText("Nothing yet.", 4, 20);
      return;
    }
    const yTicks = ticks(ranges.lowY, ranges.highY, this.compactLayout ? 3 : 6);
    const left = Math.max(...yTicks.map((value) => pen.measureText(this.formatY(value)).width)) + 10;
    this.box = { left, right: width - 6, top: this.compactLayout ? 8 : 18, bottom: height - 22 };
    this.scale(ranges);
    this.axes(pen, yTicks, ranges);
    pen.save();
    pen.beginPath();
    pen.rect(left, 0, this.box.right - left + 2, this.box.bottom + 1);
    pen.clip();
    for (const series of content.series) this.series(pen, series);
    pen.restore();
    this.labels(pen);
    this.crosshair(pen);
  }

  scale({ lowX, highX, lowY, highY }) {
    const { left, right, top, bottom } = this.box;
    const of = this.content.log ? Math.log : (value) => value;
    const [from, to] = [of(lowX), of(highX)];
    this.toX = (value) => left + ((of(value) - from) / (to - from)) * (right - left);
    this.toY = (value) => bottom - ((value - lowY) / (highY - lowY)) * (bottom - top);
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
    const wanted = Math.floor((right - left) / 90);
    const places = this.content.log ? logTicks(lowX, highX) : ticks(lowX, highX, wanted);
    for (const value of places) {
      const text = this.formatX(value);
      const half = pen.measureText(text).width / 2;
      pen.fillText(text, Math.min(Math.max(this.toX(value), left + half), right - half), bottom + 7);
    }
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
      found.push({ label: series.label, x: series.x[nearest], y: series.y[nearest], smooth: value });
      pen.fillStyle = series.tint;
      pen.beginPath();
      pen.arc(this.toX(series.x[nearest]), this.toY(value), 4, 0, 7);
      pen.fill();
    }
    pen.strokeStyle = colour("soft");
    pen.beginPath();
    pen.moveTo(Math.round(this.place) + 0.5, this.box.top);
    pen.lineTo(Math.round(this.place) + 0.5, this.box.bottom);
    pen.stroke();
    this.onPoint(found);
  }
}
