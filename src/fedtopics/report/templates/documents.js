
// A word leads to the reader's own documents: their file is read by this page, and stays here.
{
  const shown = 20, dialog = document.getElementById("documents");
  const file = dialog.querySelector("input"), choice = dialog.querySelector("select");
  const status = dialog.querySelector("[role=status]"), list = dialog.querySelector("ol");
  let word = "", rows = [], column = "";

  // Fields between separators; a field in quotes may contain separators and line ends.
  const fields = (text, separator) => {
    const lines = [[""]];
    let quoted = false;
    for (let place = 0; place < text.length; place++) {
      const line = lines.at(-1), letter = text[place];
      if (letter === '"' && quoted && text[place + 1] === '"') line[line.length - 1] += text[++place];
      else if (letter === '"' && (quoted || line.at(-1) === "")) quoted = !quoted;
      else if (letter === separator && !quoted) line.push("");
      else if (letter === "\n" && !quoted) lines.push([""]);
      else if (letter !== "\r" || quoted) line[line.length - 1] += letter;
    }
    return lines.filter((line) => line.length > 1 || line[0] !== "");
  };
  const parsed = (name, text) => {
    const lines = text.split("\n");
    if (/\.jsonl?$/i.test(name)) return lines.filter((line) => line.trim()).map((line) => JSON.parse(line));
    if (/\.txt$/i.test(name)) return lines.filter((line) => line.trim()).map((line) => ({ text: line }));
    const many = (separator) => lines[0].split(separator).length;
    const separator = [",", ";", "\t", "|"].reduce((best, next) => many(next) > many(best) ? next : best);
    const [head, ...body] = fields(text, separator);
    return body.map((line) => Object.fromEntries(head.map((title, place) => [title, line[place] ?? ""])));
  };
  const decoded = async (of) => {
    const content = await of.arrayBuffer();
    if (new Uint8Array(content).includes(0)) throw new Error("not text");
    try {
      return new TextDecoder("utf-8", { fatal: true }).decode(content);
    } catch {
      return new TextDecoder("windows-1252").decode(content);
    }
  };
  // One spelling for a word and for texts, nearly as the model counts words.
  const spelled = (text) => text.normalize("NFKC").replace(/\p{Cf}/gu, "").replace(/[\u2018\u2019\u02bc\uff07]/g, "'").replace(/[\u2010\u2011]/g, "-");
  const unspaced = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}\p{Script=Lao}\p{Script=Myanmar}\p{Script=Khmer}]/u;
  const show = () => {
    dialog.querySelector("h2").textContent = `“${word}” in your documents`;
    list.replaceChildren();
    if (!rows.length) return;
    const escaped = spelled(word).replace(/[.*+?^${}()|[\]\\]/g, "\\$&").replaceAll(" ", "\\s+");
    const [before, behind] = unspaced.test(word) ? ["", ""] : ["(?<![\\p{L}\\p{M}\\p{N}])", "(?![\\p{L}\\p{M}\\p{N}])"];
    const whole = new RegExp(`${before}(${escaped})${behind}`, "iu");
    const found = rows.map((row) => spelled(String(row[column] ?? ""))).filter((text) => whole.test(text));
    status.textContent = `${found.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} documents contain it as it is written${found.length > shown ? `; the first ${shown}:` : "."}`;
    for (const text of found.slice(0, shown)) {
      const item = document.createElement("li"), mark = document.createElement("mark");
      const [match] = whole.exec(text), at = text.search(whole), from = Math.max(0, at - 150);
      mark.textContent = match;
      const start = text.slice(from, at), end = text.slice(at + match.length, at + 250);
      item.append(from ? start.replace(/^\S*/, "…") : start, mark, at + 250 < text.length ? end.replace(/\S*$/, "…") : end);
      list.append(item);
    }
  };
  const read = async () => {
    try {
      rows = parsed(file.files[0].name, (await decoded(file.files[0])).replace(/^\uFEFF/, "").replace(/^sep=.\r?\n/, ""));
      if (!rows.every((row) => row && typeof row === "object" && !Array.isArray(row))) throw new Error("no rows");
      const names = Object.keys(rows[0]);
      const length = (name) => rows.slice(0, 100).reduce((sum, row) => sum + String(row[name] ?? "").length, 0);
      column = names.reduce((best, next) => length(next) > length(best) ? next : best);
      choice.replaceChildren(...names.map((name) => new Option(name, name, false, name === column)));
      choice.parentElement.hidden = names.length < 2;
      show();
    } catch {
      rows = [];
      list.replaceChildren();
      status.textContent = "This file has no documents that the page can read; choose CSV, TSV, JSON lines or plain text.";
    }
  };
  file.addEventListener("change", () => file.files.length && read());
  choice.addEventListener("change", () => {
    column = choice.value;
    show();
  });
  dialog.querySelector("button").addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => list.replaceChildren()); // else a saved page had them
  document.addEventListener("click", ({ target }) => {
    const clicked = target.closest?.("[data-word]");
    if (!clicked) return;
    word = clicked.dataset.word;
    show();
    dialog.showModal();
  });
}
