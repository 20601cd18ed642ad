// Tooltips, and the filter of the list of events. Without this script the browser shows the tooltips itself, after a
// delay, and the list is complete.
(() => {
  "use strict";
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  document.body.append(tip);

  for (const title of document.querySelectorAll("svg title")) {
    title.parentElement.dataset.tip = title.textContent;
    title.remove();
  }
  const place = (event) => {
    const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
    const below = event.clientY + 18;
    const fits = below + tip.offsetHeight < innerHeight;
    tip.style.left = `${Math.max(left, 8)}px`;
    tip.style.top = `${fits ? below : Math.max(event.clientY - tip.offsetHeight - 12, 8)}px`;
  };
  document.addEventListener("pointerover", (event) => {
    const shape = event.target.closest("[data-tip]");
    tip.hidden = shape === null;
    if (shape !== null) {
      tip.textContent = shape.dataset.tip;
      place(event);
    }
  });
  document.addEventListener("pointermove", (event) => tip.hidden || place(event));

  addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details")) details.open = true;
  });

  const form = document.getElementById("filter");
  if (form === null) return;
  const rows = [...document.querySelectorAll(".notables tbody tr")];
  const words = form.querySelector("[type=search]");
  const filter = () => {
    const topics = new Set([...form.querySelectorAll(":checked")].map((box) => box.value));
    const wanted = words.value.toLowerCase();
    for (const row of rows) {
      row.hidden = !topics.has(row.dataset.topic) || !row.textContent.toLowerCase().includes(wanted);
    }
  };
  form.hidden = false;
  form.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  filter();
})();
