// Replaces the sections of a page by what the stream sends, and keeps focus, what is unfolded, and where one has scrolled to.
"use strict";
(() => {
  const STALE = 30000;
  const root = document.body.dataset.root;
  const page = document.body.dataset.page;
  const mark = document.getElementById("mark");
  const sections = [...document.querySelectorAll("[data-live]")];
  let source = null;
  let last = Date.now();

  const say = (text, stale) => {
    mark.setAttribute("aria-live", stale ? "polite" : "off");  // that cycles follow one another is not read aloud
    if (mark.textContent !== text) mark.textContent = text;
    mark.classList.toggle("stale", stale);
  };

  // What the service says of itself: which cycle is shown, and before it, after "!", what is wrong.
  const heard = (text) => {
    last = Date.now();
    say(text, text.startsWith("!"));
  };

  // How to find an element again after its section was replaced.
  const path = (element, section) => {
    const steps = [];
    for (let at = element; at && at !== section; at = at.parentElement) {
      steps.unshift([...at.parentElement.children].indexOf(at));
    }
    return steps;
  };
  const follow = (section, steps) => steps.reduce((at, step) => at && at.children[step], section);

  const replace = (section, html) => {
    const active = section.contains(document.activeElement) ? document.activeElement : null;
    const href = active && active.getAttribute("href");
    const steps = active && path(active, section);
    const open = [...section.querySelectorAll("details")].map((each) => each.open);
    const scrolled = [...section.querySelectorAll(".wide")].map((each) => each.scrollLeft);
    section.innerHTML = html;
    section.querySelectorAll("details").forEach((each, at) => { each.open = Boolean(open[at]); });
    section.querySelectorAll(".wide").forEach((each, at) => { each.scrollLeft = scrolled[at] || 0; });
    if (active) {
      const same = href && [...section.querySelectorAll("a")].find((each) => each.getAttribute("href") === href);
      const found = same || follow(section, steps);
      if (found && found.focus) found.focus({ preventScroll: true });
    }
  };

  const begin = () => {
    if (source) return;
    source = new EventSource(`${root}events?page=${encodeURIComponent(page)}`);
    source.addEventListener("beat", (event) => heard(event.data));
    source.addEventListener("over", (event) => {
      end();
      say(event.data, true);
      location.reload();
    });
    source.onopen = () => { last = Date.now(); };
    source.onerror = () => {
      if (source && source.readyState === EventSource.CLOSED) {
        end();
        say("not live; looking again", true);
        setTimeout(begin, 10000);
      }
    };
    for (const section of sections) {
      source.addEventListener(section.id, (event) => {
        replace(section, event.data);
      });
    }
  };

  const end = () => {
    if (source) source.close();
    source = null;
  };

  // A browser allows a page of a host six connections; pages that are not looked at leave theirs to others.
  document.addEventListener("visibilitychange", () => (document.hidden ? end() : begin()));
  addEventListener("pagehide", end);
  setInterval(() => {
    if (!document.hidden && Date.now() - last > STALE) say("stale: no word from the service for 30 s", true);
  }, 5000);
  if (!document.hidden) begin();
})();
