"use strict";
// Shows what a new backfill would run while its form is filled. Without it a button does.
(() => {
  const form = document.querySelector("[data-preview]");
  const pause = 200; // milliseconds without a key before it asks
  let waiting, asked = 0;

  const look = async () => {
    const mine = ++asked;
    const address = `${form.action}?${new URLSearchParams(new FormData(form))}&bare=`; // without names
    try {
      const answer = await fetch(address);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.getElementById("preview");
      if (mine !== asked || !fresh) return; // a later answer counts
      document.getElementById("preview").replaceWith(document.adoptNode(fresh));
    } catch {
      document.getElementById("lost").hidden = false;
    }
  };

  form?.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(look, pause); });
})();
