"use strict";
// Zooms and pans the picture of the lineage, and shows what is searched for while it is typed.
// Without it the picture scrolls, and the form searches.
(() => {
  const frame = document.querySelector("[data-graph]");
  const picture = frame && frame.querySelector("svg");
  if (!picture) return;
  const [wide, high] = [picture.width.baseVal.value, picture.height.baseVal.value];
  const least = 0.05, most = 3;
  let scale = 1;

  const zoom = (to, x = frame.clientWidth / 2, y = frame.clientHeight / 2) => {
    const old = scale;
    scale = Math.min(most, Math.max(least, to));
    const [left, top] = [frame.scrollLeft + x, frame.scrollTop + y];
    picture.setAttribute("width", wide * scale);
    picture.setAttribute("height", high * scale);
    frame.scrollLeft = left * scale / old - x; // what is under the pointer stays there
    frame.scrollTop = top * scale / old - y;
  };
  const whole = () => Math.min(1, frame.clientWidth / wide, frame.clientHeight / high);
  const show = (node) => {
    const [box, here] = [node.getBoundingClientRect(), frame.getBoundingClientRect()];
    frame.scrollLeft += box.left + box.width / 2 - here.left - here.width / 2;
    frame.scrollTop += box.top + box.height / 2 - here.top - here.height / 2;
  };

  frame.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return; // the page and the picture scroll
    event.preventDefault();
    const here = frame.getBoundingClientRect();
    zoom(scale * Math.exp(-event.deltaY / 300), event.clientX - here.left, event.clientY - here.top);
  }, { passive: false });
  frame.addEventListener("keydown", (event) => {
    if (event.key === "+" || event.key === "=") zoom(scale * 1.25);
    else if (event.key === "-") zoom(scale / 1.25);
    else if (event.key === "0") zoom(whole());
  });

  let held = null, moved = false;
  frame.addEventListener("dragstart", (event) => event.preventDefault()); // of a link
  frame.addEventListener("pointerdown", (event) => {
    if (event.pointerType === "mouse" && event.button === 0) [held, moved] = [event, false];
  });
  addEventListener("pointermove", (event) => {
    if (!held) return;
    if (Math.abs(event.clientX - held.clientX) + Math.abs(event.clientY - held.clientY) > 3) moved = true;
    if (!moved) return;
    frame.scrollLeft -= event.movementX;
    frame.scrollTop -= event.movementY;
  });
  addEventListener("pointerup", () => { held = null; });
  frame.addEventListener("click", (event) => { if (moved) event.preventDefault(); moved = false; }, true);

  for (const button of document.querySelectorAll("[data-zoom]")) {
    button.addEventListener("click", () => {
      zoom({ in: scale * 1.25, out: scale / 1.25, whole: whole(), one: 1 }[button.dataset.zoom]);
    });
  }
  document.querySelector(".zoom").hidden = false;

  const field = document.getElementById("q");
  const nodes = [...picture.querySelectorAll("a")];
  field.addEventListener("input", () => {
    const wanted = field.value.trim().toLowerCase();
    for (const node of nodes) {
      node.classList.toggle("found", wanted !== "" && node.textContent.toLowerCase().includes(wanted));
    }
    const first = picture.querySelector(".found");
    if (first) show(first);
  });

  zoom(Math.max(whole(), 0.75)); // smaller than this cannot be read
  const left = (node) => node.getBoundingClientRect().left;
  const [first] = nodes.filter((one) => one.matches(".found, .changed")).sort((a, b) => left(a) - left(b));
  if (first) show(first);
})();
