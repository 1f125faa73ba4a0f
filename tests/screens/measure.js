// Measures the page in which it runs and writes the findings, as JSON, into its last element.
(() => {
  const channels = (text) => (text.match(/[\d.]+/g) || []).map(Number);
  const part = (value) => (value /= 255) <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const light = ([red, green, blue]) => 0.2126 * part(red) + 0.7152 * part(green) + 0.0722 * part(blue);
  const opaque = (text) => text !== "none" && channels(text).length >= 3 && (channels(text)[3] ?? 1) === 1;
  const ratio = (one, other) => {
    const [low, high] = [light(channels(one)), light(channels(other))].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  // What lies behind the middle of an element: the nearest filled shape or coloured box.
  const behind = (element, box) => {
    const all = document.elementsFromPoint(box.x + Math.min(box.width / 2, 20), box.y + box.height / 2);
    for (const each of all) {
      if (each === element || element.contains(each)) continue;
      const style = getComputedStyle(each);
      const shape = each.namespaceURI.endsWith("svg") && !["svg", "g", "text"].includes(each.tagName);
      if (shape && opaque(style.fill) && each.tagName !== "line") return style.fill;
      if (!shape && opaque(style.backgroundColor)) return style.backgroundColor;
    }
    return getComputedStyle(document.body).backgroundColor;
  };
  document.querySelectorAll("details").forEach((each) => (each.open = true));
  const faint = [];
  let texts = 0;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.data.trim() || element.closest("title, script, style")) continue;
    const box = element.getBoundingClientRect();
    if (!box.width || box.x >= innerWidth || box.y + box.height >= innerHeight) continue;
    texts += 1;
    const own = getComputedStyle(element);
    const colour = element.namespaceURI.endsWith("svg") ? own.fill : own.color;
    const ground = opaque(own.backgroundColor) ? own.backgroundColor : behind(element, box);
    const found = ratio(colour, ground);
    if (found < 4.5) faint.push(`${node.data.trim().slice(0, 40)}: ${colour} on ${ground}: ${found.toFixed(2)}`);
  }
  const unnamed = [...document.querySelectorAll('[role="img"], [role="region"], nav, pre[tabindex]')]
    .filter((each) => !each.getAttribute("aria-label"))
    .map((each) => each.outerHTML.slice(0, 80));
  const scrolling = [...document.querySelectorAll("body *")]
    .filter((each) => each.scrollWidth > each.clientWidth + 1 && getComputedStyle(each).overflowX === "auto")
    .filter((each) => each.tabIndex < 0)
    .map((each) => each.outerHTML.slice(0, 80));
  const levels = [...document.querySelectorAll("h1, h2, h3")].map((each) => Number(each.tagName[1]));
  const measured = {
    dark: matchMedia("(prefers-color-scheme: dark)").matches,
    texts, faint, unnamed,
    out_of_keyboard: scrolling,
    first_level: levels[0],
    skipped: levels.filter((level, place) => place && level > levels[place - 1] + 1),
    headless_tables: document.querySelectorAll("th:not([scope])").length,
    language: document.documentElement.lang,
    width: document.documentElement.scrollWidth,
    first_screen: (document.querySelector(".todo") || document.querySelector("h1")).getBoundingClientRect().bottom,
    broken_links: [...document.querySelectorAll("a")].filter((each) => !document.querySelector(each.hash)).length,
  };
  const pre = document.createElement("pre");
  pre.id = "measured";
  pre.textContent = JSON.stringify(measured);
  document.body.append(pre);
})();
