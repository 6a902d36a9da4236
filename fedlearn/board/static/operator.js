// What whoever holds the board's token may do. It comes behind the # of the address, which no server is sent.

import { by, element, words } from "./format.js";

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
      const { order, question } = button.dataset;
      button.addEventListener("click", () => (!question || confirm(question)) && this.send({ order }));
    }
    by("send-away").addEventListener("submit", (event) => {
      event.preventDefault();
      this.send({ order: "send-away", who: by("who").value.trim() });
    });
    by("key").addEventListener("change", () => this.explain());
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
    this.settings = new Map(described.settings.map((setting) => [setting.key, setting]));
    const chosen = by("key").value;
    by("key").replaceChildren(...keys.map((key) => Object.assign(element("option", words(key)), { value: key })));
    if (keys.includes(chosen)) by("key").value = chosen;
    this.explain();
  }

  // What the chosen setting means, and what it is just now.
  explain() {
    const setting = this.settings?.get(by("key").value);
    by("value").placeholder = setting ? `now ${setting.value || "empty"}` : "";
    const followed = setting?.bound ? `. A value set here does not grow: ${words(setting.bound)} becomes 0` : "";
    by("key-help").textContent = setting ? `${words(setting.key)}: ${setting.help}${followed}` : "";
  }

  // Only what makes sense just now may be pressed.
  follow(status) {
    const state = status?.state ?? "ended";
    for (const control of by("operator").querySelectorAll("button, input, select")) control.disabled = state === "ended";
    if (state === "paused") document.querySelector("[data-order=pause]").disabled = true;
    else document.querySelector("[data-order=go-on]").disabled = true;
    by("operator-about").textContent = state === "ended" ? "No server has this run just now, so nobody takes orders." : "You hold this board's token.";
    const others = (status?.volunteers ?? []).filter((volunteer) => !volunteer.is_local).map((volunteer) => volunteer.name);
    const known = [...by("names").children].map((option) => option.value);
    if (known.join("\n") !== others.join("\n")) {
      by("names").replaceChildren(...others.map((name) => Object.assign(element("option"), { value: name })));
    }
  }

  async send(order) {
    by("order-note").textContent = "Sent; the server answers …";
    const answer = await fetch(`api/runs/${this.runName()}/orders`, {
      method: "POST", headers: { "Content-Type": "application/json", Authorization: `Bearer ${this.token}` }, body: JSON.stringify(order),
    }).catch(() => null);
    by("order-note").textContent = answer ? await answer.text() : "The board can't be reached.";
    by("order-note").classList.toggle("bad", !answer?.ok);
    return answer?.ok ?? false;
  }
}
