// Replaces the live part of the page every two seconds.
"use strict";
(() => {
  const live = document.getElementById("live");
  const lost = document.getElementById("lost");
  const pause = document.getElementById("pause");
  let paused = false;
  let answered = new Date();

  const selecting = () => {
    const s = document.getSelection();
    return s && !s.isCollapsed && live.contains(s.anchorNode);
  };

  // What was scrolled sideways and what has the focus stays so.
  const replace = (html) => {
    const regions = () => [...live.querySelectorAll(".scroll")];
    const left = regions().map((r) => r.scrollLeft);
    const focused = regions().indexOf(document.activeElement);
    live.innerHTML = html;
    regions().forEach((r, i) => { r.scrollLeft = left[i] || 0; });
    if (focused >= 0) regions()[focused]?.focus({ preventScroll: true });
    document.title = document.getElementById("top").dataset.title;
  };

  const refresh = async () => {
    if (paused || document.hidden || selecting()) return;
    try {
      const answer = await fetch("?part=live", { cache: "no-store", signal: AbortSignal.timeout(5000) });
      if (!answer.ok) throw new Error("HTTP " + answer.status);
      replace(await answer.text());
      answered = new Date();
      lost.hidden = true;
      live.classList.remove("stale");
    } catch {
      if (lost.hidden) lost.textContent = "No answer from the mirror since " + answered.toLocaleTimeString() + ": what is below is old.";
      lost.hidden = false;
      live.classList.add("stale");
    }
  };

  const loop = async () => {
    await refresh();
    setTimeout(loop, 2000);
  };

  pause.hidden = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Paused" : "Pause";
    refresh();
  });
  document.addEventListener("visibilitychange", refresh);
  setTimeout(loop, 2000);
})();
