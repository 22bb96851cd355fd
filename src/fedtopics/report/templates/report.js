"use strict";
(() => {
  const words = JSON.parse(document.getElementById("words").textContent);
  const table = document.querySelector("table.topics");
  const topics = [...table.querySelectorAll(":scope > tbody")];
  const found = document.getElementById("found");
  const shown = 30;

  function cell(row, share, text) {
    const bar = document.createElement("span");
    bar.className = "bar";
    bar.style.setProperty("--share", share.toFixed(4));
    bar.setAttribute("aria-hidden", "true");
    row.insertCell().append(bar, text);
  }

  function percent(share) {
    return (share < 0.995 ? (100 * share).toPrecision(2) : "100") + " %";
  }

  // The first time as the model reads its topics; by relevance once lambda is moved.
  function list(topic, lambda) {
    const [all, orders] = words[topic.dataset.number];
    const first = lambda === null ? all.slice(0, shown)
      : orders[Math.round(10 * lambda)].map((place) => all[place]);
    const most = Math.max(...first.map(([, here]) => here)) || 1;
    const body = topic.querySelector("table.list tbody");
    body.replaceChildren();
    for (const [word, here, overall] of first) {
      const row = body.insertRow();
      const name = document.createElement("th");
      name.scope = "row";
      name.textContent = word;
      row.append(name);
      cell(row, Math.min(here / most, 1), percent(here));
      cell(row, Math.min(overall / most, 1), percent(overall));
    }
  }

  function open(topic, yes) {
    const button = topic.querySelector("button.words");
    button.setAttribute("aria-expanded", String(yes));
    topic.querySelector("tr.full").hidden = !yes;
    if (yes && !topic.querySelector("table.list tbody").rows.length) list(topic, null);
  }

  for (const topic of topics) {
    const button = topic.querySelector("button.words");
    button.addEventListener("click", () =>
      open(topic, button.getAttribute("aria-expanded") !== "true"));
    const slider = topic.querySelector("input[type=range]");
    slider.addEventListener("input", () => {
      slider.closest(".lambda").querySelector("output").value = Number(slider.value).toFixed(1);
      list(topic, Number(slider.value));
    });
  }

  // A link to a topic opens it.
  function follow() {
    const topic = document.getElementById(location.hash.slice(1));
    if (topics.includes(topic)) {
      topic.hidden = false;
      open(topic, true);
      topic.scrollIntoView();
    }
  }
  addEventListener("hashchange", follow);
  follow();
  document.addEventListener("click", ({ target }) => {
    const link = target.closest("a");
    const to = link && (link.getAttribute("href") || link.getAttribute("xlink:href"));
    if (to && to === location.hash) follow(); // again, where the address stays as it is
  });

  const search = document.getElementById("search");
  search.addEventListener("input", () => {
    const wanted = search.value.trim().toLowerCase();
    let left = 0;
    for (const topic of topics) {
      const { number, name } = topic.dataset;
      const own = words[number][0].map(([word]) => word);
      topic.hidden = wanted !== "" && number !== wanted &&
        ![name, ...own].some((text) => text.toLowerCase().includes(wanted));
      left += !topic.hidden;
    }
    found.textContent = wanted ? `${left} of ${topics.length}` : "";
  });

  const sort = document.getElementById("sort");
  sort.addEventListener("change", () => {
    const by = sort.value;
    const sign = by === "number" ? 1 : -1;
    topics.sort((a, b) => by === "name"
      ? a.dataset.name.localeCompare(b.dataset.name)
      : sign * (a.dataset[by] - b.dataset[by]));
    table.append(...topics);
  });

  // Figures as files: colours that follow the page are written into them.
  function save(blob, name) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }
  function standalone(svg) {
    const style = getComputedStyle(document.body);
    const copy = svg.cloneNode(true);
    copy.setAttribute("color", style.color);
    copy.setAttribute("style", `background:${style.backgroundColor}`);
    return new XMLSerializer().serializeToString(copy);
  }
  for (const button of document.querySelectorAll("button[data-save]")) {
    const figure = button.closest("figure");
    const name = figure.id.replace("figure-", "");
    button.setAttribute("aria-label", `Save ${name} as ${button.textContent}`);
    button.addEventListener("click", () => {
      const svg = figure.querySelector("svg");
      const source = new Blob([standalone(svg)], { type: "image/svg+xml" });
      if (button.dataset.save === "svg") return save(source, `${name}.svg`);
      const picture = new Image();
      picture.onload = () => {
        const canvas = document.createElement("canvas");
        canvas.width = 2 * svg.width.baseVal.value;
        canvas.height = 2 * svg.height.baseVal.value;
        const context = canvas.getContext("2d");
        context.fillStyle = getComputedStyle(document.body).backgroundColor;
        context.fillRect(0, 0, canvas.width, canvas.height);
        context.drawImage(picture, 0, 0, canvas.width, canvas.height);
        canvas.toBlob((blob) => save(blob, `${name}.png`));
      };
      picture.src = URL.createObjectURL(source);
    });
  }
})();
