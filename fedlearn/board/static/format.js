// How figures are written for people, and elements of the page.

const UNITS = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

export function compact(value) {
  if (value == null || !Number.isFinite(value)) return "–";
  const unit = UNITS.find(([size]) => Math.abs(value) >= size);
  if (!unit) return Math.abs(value) >= 100 || Number.isInteger(value) ? value.toFixed(0) : String(+value.toPrecision(3));
  const scaled = value / unit[0];
  return `${+scaled.toPrecision(3)}${unit[1]}`;
}

export function exact(value) {
  if (value == null || !Number.isFinite(value)) return "–";
  if (value !== 0 && Math.abs(value) < 0.001) return value.toExponential(3); // 0.000002216 would be wider than its column
  return Math.abs(value) >= 1000 ? compact(value) : value.toPrecision(4);
}

export function whole(value) {
  return value == null ? "–" : Math.round(value).toLocaleString("en");
}

export function bytes(value) {
  return `${compact(value)}B`;
}

export function duration(seconds) {
  if (seconds == null || !Number.isFinite(seconds)) return "–";
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${(seconds / 3600).toFixed(1)} h`;
  return `${(seconds / 86400).toFixed(1)} d`;
}

// When it was, with the date where that is not today.
export function moment(seconds) {
  const date = new Date(seconds * 1000);
  const isToday = date.toDateString() === new Date().toDateString();
  return date.toLocaleString([], { timeStyle: "short", ...(!isToday && { dateStyle: "medium" }) });
}

export function words(name) {
  return name.replaceAll("_", " ");
}

// What a refusal says: the board's in a line, a hub's in JSON; a proxy has a page of its own for it.
export async function refusal(answer) {
  const [kind, text] = [answer.headers.get("content-type") ?? "", await answer.text()];
  if (kind.startsWith("application/json")) return JSON.parse(text).error;
  return kind.startsWith("text/plain") ? text : `the server answered ${answer.status}`;
}

export const by = (id) => document.getElementById(id);

// Writes only what is new, since whoever listens to the page hears each writing.
export function say(id, text) {
  if (by(id).textContent !== text) by(id).textContent = text;
}

export function element(name, text = "", className = "") {
  const made = document.createElement(name);
  if (text !== "") made.textContent = text;
  if (className) made.className = className;
  return made;
}
