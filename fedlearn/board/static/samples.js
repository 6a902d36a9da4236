// What the model wrote, the newest first.

import { element, exact, moment, whole, words } from "./format.js";

const MAX_SHOWN = 250;

export class Samples {
  constructor() {
    this.list = document.getElementById("samples");
    this.count = document.getElementById("sample-count");
  }

  show(looks) {
    this.writes = looks.some((look) => look.text);
    this.list.replaceChildren(...looks.slice(-MAX_SHOWN).reverse().map((look) => this.item(look)));
    if (!looks.length) this.list.append(element("li", "Nothing yet. The server looks at the model now and then, and what it finds appears here.", "none"));
    this.list.scrollTop = 0;
    this.tell(this.list.querySelectorAll(".when").length);
  }

  // Whoever scrolled back to read keeps the place.
  add(looks) {
    this.list.querySelector(":scope > .none")?.remove();
    this.writes ||= looks.some((look) => look.text);
    for (const look of looks) {
      const before = this.list.scrollHeight;
      this.list.prepend(this.item(look));
      if (this.list.scrollTop > 0) this.list.scrollTop += this.list.scrollHeight - before;
    }
    while (this.list.children.length > MAX_SHOWN) this.list.lastElementChild.remove();
    this.tell(this.list.children.length);
  }

  tell(n) {
    document.getElementById("samples-title").textContent = this.writes || !n ? "What it writes" : "How it does on held-out data";
    this.count.textContent = n ? `${n} ${n === 1 ? "look" : "looks"}, newest first` : "";
  }

  item(look) {
    const item = element("li");
    const when = element("p", "", "when");
    when.append(element("b", `Step ${whole(look.step)}`));
    for (const [name, value] of Object.entries(look.figures)) when.append(element("span", `${exact(value)} ${words(name)}`));
    const time = element("time", moment(look.time));
    time.dateTime = new Date(look.time * 1000).toISOString();
    when.append(time);
    item.append(when);
    if (look.text) item.append(element("p", look.text, "text"));
    else if (this.writes) item.append(element("p", "white space only", "none"));
    return item;
  }
}
