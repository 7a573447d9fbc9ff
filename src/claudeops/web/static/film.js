// Plays a film: shows lines as their time comes, with what the session had cost by then and how its calls were judged.
"use strict";
(() => {
  const film = document.getElementById("film");
  const lines = film ? [...film.querySelectorAll("li[data-at]")] : [];
  if (!lines.length) return;
  const length = Number(film.dataset.length);
  const place = document.getElementById("place");
  const play = document.getElementById("play");
  const speed = document.getElementById("speed");
  const clock = document.getElementById("clock");
  const cost = document.getElementById("cost");
  const lamps = { allow: 0, ask: 0, deny: 0 };
  let now = length, last = 0, running = false;

  document.getElementById("controls").hidden = false;

  function show() {
    let shown = null, spent = "";
    lamps.allow = lamps.ask = lamps.deny = 0;
    for (const line of lines) {
      const isShown = Number(line.dataset.at) <= now;
      line.hidden = !isShown;
      if (!isShown) continue;
      shown = line;
      if (line.dataset.cost) spent = line.dataset.cost;
      if (line.dataset.verdict) lamps[line.dataset.verdict] += 1;
    }
    for (const name of Object.keys(lamps)) document.getElementById("lamp-" + name).textContent = lamps[name] + " " + name;
    cost.textContent = spent;
    clock.textContent = (now / 1000).toFixed(1) + " s";
    place.value = String(now);
    if (shown && running) shown.scrollIntoView({ block: "nearest" });
  }

  function step(at) {
    if (!running) return;
    now = Math.min(length, now + (at - last) * Number(speed.value));
    last = at;
    show();
    if (now >= length) pause(); else requestAnimationFrame(step);
  }

  function pause() { running = false; play.textContent = "Play"; }

  play.addEventListener("click", () => {
    if (running) { pause(); return; }
    if (now >= length) now = 0;
    running = true;
    play.textContent = "Pause";
    requestAnimationFrame((at) => { last = at; step(at); });
  });
  place.addEventListener("input", () => { now = Number(place.value); show(); });
  show();
})();
