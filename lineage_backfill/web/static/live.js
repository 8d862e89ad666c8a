"use strict";
// Keeps a page that still changes as it is now. It asks for the page again and exchanges the parts
// that differ, so the reader's place is kept. Without it the page reloads as a whole.
(() => {
  const pause = 2000; // milliseconds between an answer and the next question, at least
  const main = document.querySelector("main");
  const lost = document.getElementById("lost");

  const isRead = (part) => {
    const chosen = document.getSelection();
    return chosen && !chosen.isCollapsed && part.contains(chosen.anchorNode);
  };

  const exchange = (old, fresh) => {
    const opened = [...old.querySelectorAll("details")].map((one) => one.open);
    fresh.querySelectorAll("details").forEach((one, at) => { one.open ||= opened[at]; });
    if (old.isEqualNode(fresh) || isRead(old)) return;
    const focused = old.contains(document.activeElement) && document.activeElement;
    const where = focused && focused.getAttribute("href");
    const scrolled = [...old.querySelectorAll(".wide")].map((one) => one.scrollLeft);
    old.replaceWith(fresh);
    fresh.querySelectorAll(".wide").forEach((one, at) => { one.scrollLeft = scrolled[at] || 0; });
    const again = where && [...fresh.querySelectorAll("a")].find((a) => a.getAttribute("href") === where);
    if (again) again.focus({ preventScroll: true });
  };

  let tag = ""; // of the page that is shown; while it is the newest, the answer is 304

  const renew = (page) => {
    const parts = [...document.querySelectorAll("[data-part]")];
    const top = (part) => part.getBoundingClientRect().top;
    const read = parts.find((part) => part.getBoundingClientRect().bottom > 0) || parts[0];
    const place = top(read);
    main.style.minHeight = `${main.offsetHeight}px`; // a shorter page could not be scrolled back
    for (const old of parts) {
      const fresh = page.getElementById(old.id);
      if (fresh) exchange(old, document.adoptNode(fresh));
    }
    if (scrollY > 0) scrollBy(0, top(document.getElementById(read.id)) - place);
    document.title = page.title;
    main.dataset.live = page.querySelector("main").dataset.live;
  };

  const look = async () => {
    let wait = pause;
    if (!document.hidden) {
      const began = performance.now();
      try {
        const answer = await fetch(location.href, { headers: tag ? { "If-None-Match": tag } : {} });
        if (!answer.ok && answer.status !== 304) throw new Error(answer.statusText);
        if (answer.ok) {
          renew(new DOMParser().parseFromString(await answer.text(), "text/html"));
          tag = answer.headers.get("ETag") || "";
        }
        lost.hidden = true;
      } catch {
        lost.hidden = false;
      }
      wait = Math.max(pause, 5 * (performance.now() - began)); // a slow answer is asked for less often
    }
    if (main.dataset.live === "yes") setTimeout(look, wait);
  };

  if (main.dataset.live === "yes") setTimeout(look, pause);
})();
