// The script of the Monitor: it draws parts anew while somebody looks, and plots.
// Without it all pages work, and show what is new when they are loaded again.
"use strict";

const FIRST_MS = 300;
const EVERY_MS = 2000;
const CALM_MS = 4000; // after an answer in which nothing was new
const LATE_MS = 10000;
const LEAST_SECONDS = 300;
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 7200, 14400].map((one) => one * 60);
const DAYS_SECONDS = 2 * 86400;
const lost = document.getElementById("lost");

// -- parts

/** Make the children of `old` like those of `fresh`, touching as little as can be: focus, text that
 * is selected, open details and what is being typed stay. */
function morph(old, fresh) {
  const keyed = new Map();
  for (const child of old.children) if (child.dataset.key) keyed.set(child.dataset.key, child);
  let at = old.firstChild;
  for (const next of [...fresh.childNodes]) {
    const mine = next.dataset && next.dataset.key && keyed.get(next.dataset.key);
    if (mine && mine !== at) {
      old.insertBefore(mine, at);
      at = mine;
    }
    if (!at) {
      old.append(next);
    } else if (!alike(at, next)) {
      const gone = at;
      at = at.nextSibling;
      gone.replaceWith(next);
    } else {
      if (at.nodeType === Node.ELEMENT_NODE) morphElement(at, next);
      else if (at.data !== next.data) at.data = next.data;
      at = at.nextSibling;
    }
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

function alike(one, other) {
  return one.nodeType === other.nodeType && one.nodeName === other.nodeName
    && (one.dataset?.key ?? "") === (other.dataset?.key ?? "");
}

/** Attributes that people change by what they do. */
const THEIRS = new Set(["open", "value", "checked"]);

function morphElement(old, fresh) {
  for (const { name, value } of fresh.attributes) {
    if (!THEIRS.has(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    if (!THEIRS.has(name) && !fresh.hasAttribute(name)) old.removeAttribute(name);
  }
  if (old.dataset.plot !== undefined) return; // drawPlots has set it
  if (!["INPUT", "TEXTAREA", "SELECT"].includes(old.nodeName)) morph(old, fresh);
}

/** Keep a region as the broker has it now, while the page is seen. */
function follow(region) {
  const address = new URL(location.href);
  address.searchParams.set("part", "1");
  address.hash = "";
  let tag = "";
  let timer = 0;
  let asking = false;
  async function once() {
    let next = EVERY_MS;
    timer = 0;
    if (document.hidden) return; // begins again when the page is seen
    asking = true;
    try {
      const headers = tag ? { "If-None-Match": tag } : {};
      const signal = AbortSignal.timeout(LATE_MS);
      const answer = await fetch(address, { headers, signal, cache: "no-store" });
      if (answer.status === 401) return location.reload();
      if (answer.status === 304) {
        next = CALM_MS;
      } else {
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        morph(region, page.body);
        drawPlots();
        tag = answer.headers.get("ETag") ?? "";
      }
      lost.hidden = true;
    } catch {
      lost.textContent = document.body.dataset.lost;
      lost.hidden = false;
    }
    asking = false;
    timer = setTimeout(once, next);
  }
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && !timer && !asking) once(); // one that is under way goes on by itself
  });
  timer = setTimeout(once, FIRST_MS); // the page may have come with a part of some seconds ago
}

// -- plots

const plots = new Map();

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** Draw what stands in `data-plot`: seconds since 1970, and values. */
function draw(place) {
  const data = JSON.parse(place.dataset.plot);
  const known = plots.get(place);
  if (data[0].length < 2 || !window.uPlot) return;
  if (known) return known.setData(data);
  place.replaceChildren();
  const language = document.documentElement.lang;
  const clock = new Intl.DateTimeFormat(language, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  const calendar = new Intl.DateTimeFormat(language, { month: "short", day: "numeric" });
  const said = (plot, at) => {
    const days = plot.scales.x.max - plot.scales.x.min > DAYS_SECONDS;
    const texts = at.map((one) => (days ? calendar : clock).format(one * 1000));
    return texts.map((text, place) => (text === texts[place - 1] ? "" : text)); // a day once
  };
  const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
  plots.set(place, new uPlot({
    width: place.clientWidth,
    height: place.clientHeight,
    cursor: { y: false, drag: { x: false } },
    scales: { x: { range: (_, first, last) => [Math.min(first, last - LEAST_SECONDS), last] }, y: { range: (_, least, most) => [0, most > 0 ? most * 1.1 : 1] } },
    series: [{}, { label: place.dataset.label, stroke: colour("--green"), width: 1.5, points: { show: false } }],
    axes: [
      { ...axis, size: 28, space: 80, incrs: STEPS, values: said },
      { ...axis, size: 46 },
    ],
  }, data, place));
}

/** Load the script and the style that `data-plots` names, and draw all plots. */
function load() {
  const [script, style] = document.body.dataset.plots.split(" ");
  const parts = [
    Object.assign(document.createElement("script"), { src: script }),
    Object.assign(document.createElement("link"), { rel: "stylesheet", href: style }),
  ];
  const loaded = parts.map((part) => new Promise((done) => part.addEventListener("load", done)));
  document.head.append(...parts);
  Promise.all(loaded).then(drawPlots);
}

/** Draw all plots of the page, and forget those that are gone. */
function drawPlots() {
  for (const [place, plot] of [...plots]) {
    if (place.isConnected) continue;
    plot.destroy();
    plots.delete(place);
  }
  document.querySelectorAll("[data-plot]").forEach(draw);
}

function drawAnew() {
  for (const [place, plot] of [...plots]) {
    plot.destroy();
    plots.delete(place);
    if (place.isConnected) draw(place);
  }
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAnew);
let settled = 0;
addEventListener("resize", () => {
  clearTimeout(settled);
  settled = setTimeout(drawAnew, 150);
});

// -- questions

/** Only one question is open, and Escape closes it. */
document.addEventListener("toggle", (event) => {
  if (!event.target.open || !event.target.matches?.("details.sure")) return;
  for (const other of document.querySelectorAll("details.sure[open]")) {
    if (other !== event.target) other.open = false;
  }
}, true);
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  for (const one of document.querySelectorAll("details.sure[open]")) {
    one.open = false;
    one.querySelector("summary").focus();
  }
});

// The page is shown first. Then the library for its plots is loaded: to read it takes the processor
// time that the first paint needs.
if (document.body.dataset.plots) {
  if (self.PerformanceObserver?.supportedEntryTypes?.includes("paint")) {
    const shown = new PerformanceObserver(() => {
      shown.disconnect();
      clearTimeout(late);
      load();
    });
    const late = setTimeout(() => {
      shown.disconnect();
      load();
    }, LATE_MS);
    shown.observe({ type: "paint", buffered: true });
  } else {
    requestAnimationFrame(() => setTimeout(load));
  }
}
document.querySelectorAll("[data-live]").forEach(follow);
// On a phone the menu is a row, of which the page's own place may be out of sight.
document.querySelector("nav [aria-current=page]")?.scrollIntoView({ block: "nearest", inline: "center" });
