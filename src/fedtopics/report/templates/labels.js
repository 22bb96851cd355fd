
// Names of topics: edited here, kept by the browser, and saved as the file that the model reads.
{
  const place = `fedtopics names of ${document.body.dataset.model}`;
  const save = document.getElementById("keep");
  let names = {};
  try {
    names = JSON.parse(localStorage.getItem(place)) ?? {};
  } catch { /* the browser has no storage for this page */ }

  const show = (card, name) => {
    card.dataset.name = name || card.dataset.words;
    for (const shown of document.querySelectorAll(`[data-name-of="${card.dataset.number}"]`))
      shown.textContent = card.dataset.name;
    for (const shown of document.querySelectorAll(`.maybe[data-name-of="${card.dataset.number}"]`))
      shown.classList.remove("maybe");
    card.querySelector(".badge")?.remove(); // somebody has looked at it
  };
  const keep = (card, name) => {
    names[card.dataset.number] = name;
    show(card, name);
    save.hidden = false;
    try {
      localStorage.setItem(place, JSON.stringify(names));
    } catch { /* it is in the page until that is closed */ }
  };
  const edit = (card) => {
    const label = card.querySelector("h3 .label");
    const field = document.createElement("input");
    field.maxLength = 100;
    field.value = card.dataset.name === card.dataset.words ? "" : card.dataset.name;
    field.placeholder = card.dataset.words;
    field.setAttribute("aria-label", `Name of ${card.dataset.number}`);
    label.hidden = true;
    label.after(field);
    field.focus();
    let open = true;
    const done = (kept) => {
      if (!open) return;
      open = false; // removing the field may trigger blur again
      field.remove();
      label.hidden = false;
      if (kept) keep(card, field.value.trim());
      card.querySelector(".rename").focus();
    };
    field.addEventListener("keydown", (event) => {
      if (event.isComposing || (event.key !== "Enter" && event.key !== "Escape")) return;
      event.preventDefault(); // else Enter would press the button that gets the focus
      done(event.key === "Enter");
    });
    const before = field.value;
    field.addEventListener("blur", () => done(field.value !== before)); // leaving the field unchanged confirms nothing
  };
  for (const card of cards) {
    card.querySelector(".rename").addEventListener("click", () => edit(card));
    const { number, name } = card.dataset;
    if (number in names && (names[number] !== name || card.querySelector(".badge"))) {
      show(card, names[number]);
      save.hidden = false;
    }
  }
  save.addEventListener("click", () => {
    const rows = cards.map((card) => {
      const { number, name, words: first } = card.dataset;
      const label = name === first ? "" : name;
      const suggested = card.querySelector(".badge") ? label : "";
      return { topic: Number(number), label, suggested };
    });
    const text = JSON.stringify(rows.sort((a, b) => a.topic - b.topic), null, 1);
    download(new Blob([text], { type: "application/json" }), "topics.json");
  });
}
