// Who lends a machine just now, and who came and went while this page was open.

import { compact, duration, element, moment, whole } from "./format.js";

const MAX_ARRIVALS = 12;
const HEADS = ["", "Share", "Members/s", "Exchange", "Trust", "Weights", "Credit"];
const PHASES = { waiting: "waits for weights", syncing: "receives weights", ready: "" };
const DIGESTS = { equal: ["the same", "good"], drifted: ["drifted, sent anew", "warn"], unknown: ["not known yet", ""] };

export class Volunteers {
  constructor() {
    this.body = document.querySelector("#volunteers tbody");
    this.arrivals = document.getElementById("arrivals");
    this.count = document.getElementById("volunteer-count");
    this.forget();
  }

  forget() {
    this.before = null;
    this.arrivals.replaceChildren();
  }

  show(status) {
    const listed = status?.volunteers ?? [];
    const n = status?.n_volunteers ?? 0;
    const many = `${whole(n)} ${n === 1 ? "volunteer" : "volunteers"}`;
    this.count.textContent = n > listed.length ? `${many}; the ${listed.length} with the largest shares are listed` : n ? many : "";
    const rows = listed.map((volunteer) => this.row(volunteer));
    if (!rows.length) {
      const cell = element("td", (status?.state ?? "ended") === "ended" ? "The run is not being trained just now." : "Nobody yet.", "quiet");
      cell.colSpan = 7;
      rows.push(element("tr"));
      rows[0].append(cell);
    }
    this.body.replaceChildren(...rows);
    if (n === listed.length) this.compare(listed);
  }

  row(volunteer) {
    const row = element("tr");
    const name = element("td", "", "name");
    name.append(element("bdi", volunteer.name)); // which may be written from right to left
    name.title = `identity ${volunteer.identity}…`;
    const about = [volunteer.is_local ? "of the server" : "", PHASES[volunteer.phase]].filter(Boolean).join(", ");
    if (about) name.append(element("small", about));
    const share = element("td");
    const meter = element("meter");
    Object.assign(meter, { min: 0, max: 1, value: volunteer.share });
    meter.setAttribute("aria-label", `share of ${volunteer.name}`);
    share.append(meter, `${(volunteer.share * 100).toFixed(volunteer.share < 0.1 ? 1 : 0)} %`);
    const exchange = volunteer.exchange_s == null ? "–" : volunteer.exchange_s < 1 ? `${Math.round(volunteer.exchange_s * 1000)} ms` : duration(volunteer.exchange_s);
    const trust = volunteer.caught ? [`${volunteer.caught} false`, "bad"] : volunteer.trust === "proven" ? ["proven", "good"] : ["new", ""];
    const { members, agreed } = volunteer.credit;
    const credit = element("td", compact(members), "number");
    credit.title = `${whole(members)} members, ${whole(agreed)} groups checked and right, ${duration(volunteer.credit.seconds)} of work`;
    row.append(
      name, share, element("td", compact(volunteer.members_per_s), "number"), element("td", exchange, "number"),
      element("td", ...trust), element("td", ...DIGESTS[volunteer.digest]), credit,
    );
    [...row.children].forEach((cell, at) => { cell.dataset.label = HEADS[at]; });
    return row;
  }

  // By name and identity, since one machine may lend itself several times.
  compare(listed) {
    const now = new Map(listed.map((volunteer) => [`${volunteer.identity} ${volunteer.name}`, volunteer.name]));
    if (this.before) {
      for (const [key, name] of now) if (!this.before.has(key)) this.tell(`${name} joined`);
      for (const [key, name] of this.before) if (!now.has(key)) this.tell(`${name} left`);
    }
    this.before = now;
  }

  tell(text) {
    this.arrivals.prepend(element("li", `${moment(Date.now() / 1000)} ${text}`));
    while (this.arrivals.children.length > MAX_ARRIVALS) this.arrivals.lastElementChild.remove();
  }
}
