// The run's settings, with the reasons of those that it chose itself.

import { by, element, whole, words } from "./format.js";

export class Settings {
  constructor() {
    this.described = { settings: [], notes: [] };
    by("all-settings").addEventListener("change", () => this.draw());
  }

  show(described) {
    this.described = described;
    by("download").href = `api/runs/${described.name}/weights`;
    this.draw();
  }

  draw() {
    const { settings, notes } = this.described;
    const shown = settings.filter((setting) => by("all-settings").checked || !setting.is_usual || setting.reason || setting.set_at != null);
    by("notes").replaceChildren(...notes.map((note) => element("li", note)));
    by("settings").replaceChildren(...shown.map((setting) => {
      const entry = element("div");
      const [title, value] = [element("dt", words(setting.key)), element("dd")];
      title.title = setting.help;
      value.append(element("b", setting.value || "–"));
      if (setting.set_at != null) {
        const why = setting.along_with ? `Followed ${words(setting.along_with)}, which the operator set` : "Set by the operator";
        value.append(element("p", `${why} at step ${whole(setting.set_at)}; it was ${setting.before || "–"}.`));
      } else value.append(element("p", setting.reason || setting.help));
      entry.append(title, value);
      return entry;
    }));
  }
}
