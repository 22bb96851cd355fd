"use strict";
const words = JSON.parse(document.getElementById("words").textContent);
const cards = [...document.querySelectorAll("li.topic")];
document.documentElement.classList.add("scripted");

// Lists of words: by default as the model ranks them; by relevance once lambda is moved.
{
  const shown = 30;
  const percent = (share) => {
    const hundredths = 100 * share;
    if (hundredths < 0.05) return share > 0 ? "<0.1 %" : "0 %";
    return `${hundredths.toFixed(hundredths < 9.95 ? 1 : 0)} %`;
  };
  const cell = (row, share, text) => {
    const bar = document.createElement("span"), value = document.createElement("span");
    bar.className = "bar";
    bar.style.setProperty("--share", share.toFixed(4));
    bar.setAttribute("aria-hidden", "true");
    value.className = "value";
    value.textContent = text;
    const made = row.insertCell();
    made.className = "number";
    made.append(bar, value);
  };
  const list = (card, lambda) => {
    const [all, orders] = words[card.dataset.number];
    const first = lambda === null ? all.slice(0, shown)
      : orders[Math.round(10 * lambda)].map((place) => all[place]);
    const most = Math.max(...first.map(([, here]) => here)) || 1;
    const body = card.querySelector("table.list tbody");
    body.replaceChildren();
    for (const [word, here, overall] of first) {
      const row = body.insertRow();
      const name = document.createElement("th");
      name.scope = "row";
      const open = document.createElement("button");
      open.type = "button";
      open.textContent = open.dataset.word = word;
      name.append(open);
      row.append(name);
      cell(row, Math.min(here / most, 1), percent(here));
      cell(row, Math.min(overall / most, 1), percent(overall));
    }
  };
  for (const card of cards) {
    const more = card.querySelector("details.more");
    more.addEventListener("toggle", () => {
      if (more.open && !card.querySelector("table.list tbody").rows.length) list(card, null);
    });
    const slider = card.querySelector("input[type=range]");
    slider.addEventListener("input", () => {
      card.querySelector("output").value = Number(slider.value).toFixed(1);
      list(card, Number(slider.value));
    });
  }
}

// A link to a topic opens it.
{
  const follow = () => {
    const card = document.getElementById(location.hash.slice(1));
    if (!cards.includes(card)) return;
    card.hidden = false;
    card.querySelector("details.more").open = true;
    card.scrollIntoView();
  };
  addEventListener("hashchange", follow);
  follow();
  document.addEventListener("click", ({ target }) => {
    const link = target.closest("a");
    if (link && link.getAttribute("href") === location.hash) follow(); // again, at the same address
  });
}

// Highlights a topic everywhere: in the map, in tables, at clients, in the tree.
{
  const places = {}, peek = document.getElementById("peek");
  for (const place of document.querySelectorAll("[data-topic]"))
    (places[place.dataset.topic] ??= []).push(place);
  let lit = null;
  const light = (topic) => {
    if (topic === lit) return;
    for (const place of places[lit] ?? []) place.classList.remove("lit");
    for (const place of places[topic] ?? []) place.classList.add("lit");
    document.body.classList.toggle("dim", topic !== null);
    const card = document.getElementById(`topic-${topic}`);
    const first = topic === null ? [] : words[topic][0].slice(0, 10).map(([word]) => word);
    peek.textContent = card ? `${card.dataset.name}: ${first.join(" ")}` : "";
    lit = topic;
  };
  const of = ({ target }) => target.closest?.("[data-topic]")?.dataset.topic ?? null;
  document.addEventListener("pointerover", (event) => light(of(event)));
  document.addEventListener("focusin", (event) => light(of(event)));
  document.documentElement.addEventListener("pointerleave", () => light(null));
}

// Search and sort.
{
  const search = document.getElementById("search");
  search.addEventListener("input", () => {
    const wanted = search.value.trim().toLowerCase(), terms = wanted.split(/\s+/);
    let left = 0;
    for (const card of cards) {
      const { number, name } = card.dataset;
      const own = words[number][0].map(([word]) => word);
      card.hidden = wanted !== "" && number !== wanted &&
        !terms.every((term) => [name, ...own].some((text) => text.toLowerCase().includes(term)));
      left += !card.hidden;
    }
    document.getElementById("matches").textContent = wanted ? `${left} of ${cards.length}` : "";
  });
  const sort = document.getElementById("sort");
  sort.addEventListener("change", () => {
    const by = sort.value;
    const sign = by === "number" ? 1 : -1;
    cards.sort((a, b) => by === "name"
      ? a.dataset.name.localeCompare(b.dataset.name)
      : sign * (a.dataset[by] - b.dataset[by]));
    document.querySelector("ul.cards").append(...cards);
  });
}
