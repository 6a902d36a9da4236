// The box: a prompt, and the text as the model writes it.

import { by, refusal } from "./format.js";

export class Write {
  constructor(runName) {
    this.runName = runName;
    this.going = null;
    for (const radio of document.querySelectorAll("input[name=search]")) radio.addEventListener("change", () => this.showFields());
    by("ask").addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.going) this.going.abort();
      else this.ask();
    });
    by("prompt").addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) by("ask").requestSubmit();
    });
    this.showFields();
  }

  get isSearch() {
    return document.querySelector("input[name=search]:checked").value === "beams";
  }

  showFields() {
    by("temperature-field").hidden = this.isSearch;
    by("beams-field").hidden = !this.isSearch;
  }

  forget() {
    this.going?.abort();
    for (const id of ["given", "answer"]) by(id).textContent = "";
    by("unasked").hidden = false;
    by("write-note").textContent = "";
  }

  generation() {
    const prompt = by("prompt").value;
    const length = Number(by("length").value);
    return this.isSearch ? { prompt, length, beams: Number(by("beams").value) } : { prompt, length, temperature: Number(by("temperature").value) };
  }

  async ask() {
    this.going = new AbortController();
    const generation = this.generation();
    by("send").textContent = "Stop";
    by("unasked").hidden = true;
    by("written").setAttribute("aria-busy", "true");
    by("given").textContent = generation.prompt;
    by("answer").textContent = "";
    by("write-note").textContent = "";
    try {
      await this.receive(generation);
    } catch (error) {
      if (error.name !== "AbortError") by("write-note").textContent = error.message;
    } finally {
      this.going = null;
      by("send").textContent = "Write";
      by("written").setAttribute("aria-busy", "false");
    }
  }

  async receive(generation) {
    const answer = await fetch(`api/runs/${this.runName()}/write`, {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(generation), signal: this.going.signal,
    });
    if (!answer.ok) throw new Error(await refusal(answer));
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let [rest, text] = ["", []];
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) text = this.take(JSON.parse(line), text);
    }
  }

  // Characters as Python counts them, which are code points.
  take({ keep = 0, add = "", step = -1, note = "", error = "" }, text) {
    if (error) throw new Error(error);
    if (step >= 0) by("write-note").textContent = [`Weights of step ${step.toLocaleString("en")}.`, note].filter(Boolean).join(" ");
    if (step >= 0) return text;
    const grown = [...text.slice(0, keep), ...add];
    by("answer").textContent = grown.join("");
    by("written").scrollTop = by("written").scrollHeight;
    return grown;
  }
}
