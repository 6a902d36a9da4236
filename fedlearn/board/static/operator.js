// What whoever holds the board's token may do. It comes behind the # of the address, which no server is sent.

import { element, words } from "./format.js";

const by = (id) => document.getElementById(id);
const KEY = "board-token";

export class Operator {
  constructor(runName) {
    this.runName = runName;
    const given = new URLSearchParams(location.hash.slice(1)).get("token");
    if (given) {
      sessionStorage.setItem(KEY, given);
      history.replaceState(null, "", location.pathname + location.search);
    }
    for (const button of document.querySelectorAll("[data-order]")) {
      button.addEventListener("click", () => this.send({ order: button.dataset.order }));
    }
    by("send-away").addEventListener("submit", (event) => {
      event.preventDefault();
      this.send({ order: "send-away", who: by("who").value });
    });
    by("change").addEventListener("submit", (event) => {
      event.preventDefault();
      this.send({ order: "set", key: by("key").value, value: by("value").value });
    });
  }

  get token() {
    return sessionStorage.getItem(KEY);
  }

  async start() {
    if (!this.token) return;
    const answer = await fetch("api/operator", { headers: { Authorization: `Bearer ${this.token}` } });
    if (answer.status === 403) sessionStorage.removeItem(KEY);
    by("operator").hidden = !answer.ok;
  }

  show(described) {
    const keys = described.settings.filter((setting) => setting.is_changeable).map(({ key }) => key);
    const chosen = by("key").value;
    by("key").replaceChildren(...keys.map((key) => Object.assign(element("option", words(key)), { value: key })));
    if (keys.includes(chosen)) by("key").value = chosen;
  }

  async send(order) {
    by("order-note").textContent = "Sent; the server answers …";
    const answer = await fetch(`api/runs/${this.runName()}/orders`, {
      method: "POST", headers: { "Content-Type": "application/json", Authorization: `Bearer ${this.token}` }, body: JSON.stringify(order),
    }).catch(() => null);
    by("order-note").textContent = answer ? await answer.text() : "The board can't be reached.";
  }
}
