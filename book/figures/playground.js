// The playground: eight clients with a few points each, one model for all after training, and what CFL would do with them.

const CLIENTS = 8, POINTS = 8, RULE = { eps1: 0.15, eps2: 0.4 }; // interactive.LENGTHS
const PRESETS = { // what the second kind of clients does to the points of the first; who is of which kind
  xor: { name: "XOR: above and below", kinds: [0, 0, 0, 0, 0, 1, 1, 1] },
  against: { name: "They contradict each other", kinds: [0, 0, 0, 0, 0, 1, 1, 1] },
  one: { name: "All alike", kinds: [0, 0, 0, 0, 0, 0, 0, 0] },
  three: { name: "Three kinds", kinds: [0, 0, 0, 1, 1, 1, 2, 2] },
  odd: { name: "One odd client", kinds: [0, 0, 0, 0, 0, 0, 0, 1] },
};

/** Numbers that look like chance, the same for everybody: from -1 to 1, about normal. */
function jitter(n) {
  let sum = 0;
  for (let i = 1; i <= 4; i++) { const s = Math.sin(12.9898 * n + 78.233 * i) * 43758.5453; sum += s - Math.floor(s) - 0.5; }
  return sum;
}

/** The clients of a preset, as the reader has them: for each its points [x1, x2, label] before noise and turns. */
function base(preset) {
  return PRESETS[preset].kinds.map((kind, i) => Array.from({ length: POINTS }, (_, j) => {
    const y = j % 2 ? 1 : -1, up = j % 4 < 2 ? 1 : -1, side = kind ? -1 : 1;
    if (preset === "xor") return [1.3 * y * side, 1.3 * side + 0.5 * up, y];
    if (preset === "three") {
      const turn = 2 * Math.PI * kind / 3;
      return [1.3 * (y * Math.cos(turn) - up * Math.sin(turn)), 1.3 * (y * Math.sin(turn) + up * Math.cos(turn)), y];
    }
    return [1.3 * y * side, 1.3 * up, y];
  }));
}

/** The points with noise, and turned and flipped client by client. */
function place({ points, noise, turn, flip }) {
  return points.map((own, i) => own.map(([a, b, y], j) => {
    const u = a + noise * jitter(40 * i + 2 * j), v = b + noise * jitter(40 * i + 2 * j + 1), t = turn[i] * Math.PI / 180;
    return [u * Math.cos(t) - v * Math.sin(t), u * Math.sin(t) + v * Math.cos(t), flip[i] ? -y : y];
  }));
}

/** Where training starts: first weights and biases (h rows of 3), then weights and bias of the output. */
function begin(hidden) {
  if (!hidden) return [0, 0, 0];
  const first = Array.from({ length: hidden }, (_, j) => [0.7 * Math.cos(0.3 + 2 * Math.PI * j / hidden), 0.7 * Math.sin(0.3 + 2 * Math.PI * j / hidden), 0.1 * (-1) ** j]);
  return [...first.flat(), ...first.map((_, j) => ((5 * j) % hidden - 3.5) / 10), 0];
}

/** What the model says at a place. */
function predict(theta, hidden, [a, b]) {
  if (!hidden) return theta[0] * a + theta[1] * b + theta[2];
  let out = theta[4 * hidden];
  for (let j = 0; j < hidden; j++) out += theta[3 * hidden + j] * Math.max(0, theta[3 * j] * a + theta[3 * j + 1] * b + theta[3 * j + 2]);
  return out;
}

/** The gradient of a client's mean of (prediction - label)^2 / 2. */
function gradient(theta, hidden, own) {
  const g = new Float64Array(theta.length);
  for (const [a, b, y] of own) {
    const off = (predict(theta, hidden, [a, b]) - y) / own.length;
    if (!hidden) { g[0] += off * a; g[1] += off * b; g[2] += off; continue; }
    for (let j = 0; j < hidden; j++) {
      const z = theta[3 * j] * a + theta[3 * j + 1] * b + theta[3 * j + 2];
      if (z <= 0) continue;
      const back = off * theta[3 * hidden + j];
      g[3 * hidden + j] += off * z;
      g[3 * j] += back * a; g[3 * j + 1] += back * b; g[3 * j + 2] += back;
    }
    g[4 * hidden] += off;
  }
  return g;
}

const dot = (a, b) => a.reduce((sum, v, i) => sum + v * b[i], 0);
const norm = (a) => Math.sqrt(dot(a, a));

/** CFL Eq. 6: join the most alike until two parts are left (single linkage). */
function bipartition(alpha) {
  const pairs = alpha.flatMap((row, i) => row.slice(0, i).map((v, j) => [v, i, j])).sort((a, b) => b[0] - a[0]);
  const part = alpha.map((_, i) => i);
  let parts = part.length;
  for (const [, i, j] of pairs) {
    if (parts === 2) break;
    if (part[i] !== part[j]) { const old = part[i], to = part[j]; part.forEach((p, k) => { if (p === old) part[k] = to; }); parts--; }
  }
  const second = part.map((p) => Number(p !== part[0]));
  const across = pairs.filter(([, i, j]) => second[i] !== second[j]).map(([v]) => v);
  return { part: second, objective: Math.max(...across) };
}

/** One model for all after so many full steps, the clients' gradients there, and the cut. */
function solve(clients, hidden, steps = 3000, lr = 0.05) {
  const theta = Float64Array.from(begin(hidden)), n = clients.reduce((sum, own) => sum + own.length, 0);
  const mean = () => {
    const gradients = clients.map((own) => gradient(theta, hidden, own)), g = new Float64Array(theta.length);
    gradients.forEach((one, i) => one.forEach((v, k) => { g[k] += v * clients[i].length / n; }));
    return [gradients, g];
  };
  const all = clients.flat();
  for (let t = 0; t < steps; t++) { // equal sizes: all points at once
    const g = clients.every((own) => own.length === clients[0].length) ? gradient(theta, hidden, all) : mean()[1];
    for (let k = 0; k < theta.length; k++) theta[k] -= lr * g[k];
  }
  const [gradients, g] = mean(), lengths = gradients.map(norm);
  const cosines = gradients.map((a, i) => gradients.map((b, j) => i === j ? 1 : dot(a, b) / (lengths[i] * lengths[j] || 1)));
  const right = clients.map((own) => own.filter((p) => predict(theta, hidden, p) * p[2] > 0).length / own.length);
  return { theta: [...theta], gradients, lengths, mean: norm(g), longest: Math.max(...lengths), cosines, ...bipartition(cosines), right };
}

/** The gradients in the plane in which they are longest. */
function flatten(gradients) {
  const gram = gradients.map((a) => gradients.map((b) => dot(a, b))), axes = [];
  for (let axis = 0; axis < 2; axis++) {
    let v = gram.map((_, i) => 1 + jitter(i + 7 * axis)), size = 0;
    for (let t = 0; t < 200; t++) { v = gram.map((row) => dot(row, v)); size = norm(v); if (size < 1e-15) break; v = v.map((e) => e / size); }
    const sign = v[0] < 0 ? -1 : 1;
    axes.push(size < 1e-12 ? v.map(() => 0) : v.map((e) => sign * e * Math.sqrt(size)));
    gram.forEach((row, i) => row.forEach((_, j) => { row[j] -= size * v[i] * v[j]; }));
  }
  return gradients.map((_, i) => [axes[0][i], axes[1][i]]);
}

/** Both conditions: the model stands still, and some client does not. */
function verdict(end, eps2) {
  const still = end.mean / (end.longest || 1), hard = end.longest;
  return { still, hard, cut: still < RULE.eps1 && hard >= eps2 };
}

function sentence(end, eps2) {
  const { still, hard, cut } = verdict(end, eps2), numbers = (side) => list(end.part.flatMap((p, i) => p === side ? [i + 1] : []));
  const right = Math.round(100 * end.right.reduce((a, b) => a + b) / end.right.length);
  const one = `One model for all is right about ${right} of 100 points. `;
  if (cut) return `${one}The model has converged, and yet the longest gradient is ${show(hard)}, at least ε₂ = ${show(eps2)}, so the clients pull against each other. CFL splits ${numbers(0)} from ${numbers(1)}. The largest cosine between the two sides is ${show(end.objective)}.`;
  const lowest = Math.min(...end.cosines.flat());
  if (hard < eps2) return `${one}No split, because the longest gradient is ${show(hard)}, below ε₂ = ${show(eps2)}. No client pulls hard, although cosines go down to ${show(lowest)}. The angle says how to split, not whether to.`;
  return `${one}No split, because the mean gradient is still ${show(still)} of the longest, so the model has not converged.`;
}

/** The picture: points and model, gradients, cosines, both conditions. */
function scene(clients, hidden, end, eps2, chosen = -1) {
  const { still, hard, cut } = verdict(end, eps2), colour = (i) => `var(--g${cut ? end.part[i] : 6})`;
  const at = ([a, b]) => [150 + 46 * a, 150 - 46 * b], px = (v) => v.toFixed(1);
  let plane = "";
  for (let a = 0; a < 30; a++) for (let b = 0; b < 30; b++) {
    if (predict(end.theta, hidden, [(a * 10 + 5 - 150) / 46, (150 - b * 10 - 5) / 46]) > 0) plane += `M${a * 10} ${b * 10}h10v10h-10z`;
  }
  const points = clients.map((own, i) => own.map((p) => {
    const [u, v] = at(p).map(px), ring = i === chosen ? `<circle cx="${u}" cy="${v}" r="9" fill="none" stroke="currentColor"/>` : "";
    return ring + (p[2] > 0 ? `<circle cx="${u}" cy="${v}" r="4.5" fill="${colour(i)}"/>` : `<path d="M${u} ${v}m-4-4l8 8m0-8l-8 8" stroke="${colour(i)}" stroke-width="2.4"/>`);
  }).join("")).join("");
  const flat = flatten(end.gradients), scale = 92 / Math.max(0.5, ...flat.map(norm));
  const labels = []; // arrows that end in one place share a label
  const arrows = flat.map(([a, b], i) => {
    const x = 110 + a * scale, y = 118 - b * scale, angle = Math.atan2(y - 118, x - 110) * 180 / Math.PI, long = Math.hypot(x - 110, y - 118);
    const t = 1 + 14 / Math.max(long, 1), u = 110 + t * (x - 110), v = 122 + t * (y - 118), near = labels.find((l) => Math.hypot(l.u - u, l.v - v) < 14);
    if (near) near.names.push(i + 1); else labels.push({ u, v, names: [i + 1] });
    const head = long < 6 ? "" : `<path d="M0 0l-8-4v8z" fill="${colour(i)}" transform="translate(${px(x)} ${px(y)}) rotate(${px(angle)})"/>`;
    return `<path d="M110 118L${px(x)} ${px(y)}" stroke="${colour(i)}" stroke-width="2.4"/>${head}`;
  }).join("") + labels.map(({ u, v, names }) => {
    const lines = names.length > 4 ? [names.slice(0, 4), names.slice(4)] : [names];
    return lines.map((l, n) => `<text class="mid" x="${px(Math.max(14, Math.min(206, u)))}" y="${px(v + (names.length > 1 ? 16 : 0) + 13 * n)}">${l.join(" ")}</text>`).join("");
  }).join("");
  const order = [...end.part.keys()].sort((a, b) => cut ? end.part[a] - end.part[b] || a - b : a - b);
  const cells = order.map((i, r) => order.map((j, c) => {
    const v = end.cosines[i][j];
    return `<rect x="${c * 26}" y="${r * 26}" width="25" height="25" fill="var(--${i === j ? "line" : v > 0 ? "plus" : "minus"})" fill-opacity="${i === j ? 1 : Math.min(1, Math.abs(v)).toFixed(2)}"/>`;
  }).join("") + `<text class="end" x="-5" y="${r * 26 + 17}">${i + 1}</text><text class="mid" x="${r * 26 + 13}" y="-5">${i + 1}</text>`).join("");
  const line = cut ? end.part.filter((p) => !p).length * 26 - 0.5 : 0, lines = cut ? `<path d="M${line} 0v208M0 ${line}h208" stroke="currentColor" stroke-width="2"/>` : "";
  const bar = (y, name, value, eps, most, fine) => `<text x="0" y="${y}">${name}</text><text class="end" x="440" y="${y}">${show(value)} ${fine ? "\u2713" : "\u2717"}</text>`
    + `<rect x="0" y="${y + 6}" width="440" height="10" fill="var(--soft)"/><rect x="0" y="${y + 6}" width="${px(440 * Math.min(1, value / most))}" height="10" fill="var(--${fine ? "good" : "g6"})"/>`
    + `<path d="M${px(440 * eps / most)} ${y + 2}v18" stroke="var(--warn)" stroke-width="3"/>`;
  return `<div class="columns"><div><div class="plane"><svg viewBox="0 0 300 300" role="img" aria-label="The points of eight clients, and where the model says plus."><rect width="300" height="300" fill="none" stroke="var(--line)"/><path d="${plane}" fill="var(--soft)"/>${points}</svg></div>`
    + `<div class="key">● label +1, × label −1; grey: the model says +1</div></div>`
    + `<div class="wide"><svg viewBox="0 0 460 340" role="img" aria-label="The clients' gradients, their cosines, and both conditions for a split."><text class="title" x="0" y="10">gradients after training</text>${arrows}<text class="title" x="228" y="10">cosines</text><g transform="translate(246 36)">${cells}${lines}</g>`
    + `<g transform="translate(0 274)">${bar(0, `mean gradient / longest (a split needs less than ε₁ = ${show(RULE.eps1)})`, still, RULE.eps1, 1, still < RULE.eps1)}${bar(40, `longest gradient (a split needs at least ε₂ = ${show(eps2)})`, hard, eps2, 2.5, hard >= eps2)}</g></svg></div></div>`;
}

/** The same numbers as a table. */
function table(end) {
  const rows = end.lengths.map((v, i) => `<tr><th scope="row">${i + 1}</th><td>${show(v, 3)}</td><td>${show(end.right[i])}</td><td>${end.part[i] + 1}</td>${end.cosines[i].map((c) => `<td>${show(c)}</td>`).join("")}</tr>`);
  return `<table><thead><tr><th>client</th><th>length</th><th>right</th><th>part</th>${end.part.map((_, i) => `<th>cosine with ${i + 1}</th>`).join("")}</tr></thead><tbody>${rows.join("")}</tbody></table>`;
}

const FIRST = { preset: "xor", hidden: 0, noise: 0.4, eps2: RULE.eps2 };
const fresh = (preset, noise) => ({ points: base(preset), noise, turn: Array(CLIENTS).fill(0), flip: Array(CLIENTS).fill(false) });

/** The figure before its script runs. */
function still() {
  const clients = place(fresh(FIRST.preset, FIRST.noise)), end = solve(clients, FIRST.hidden);
  return `<div class="scene">${scene(clients, FIRST.hidden, end, FIRST.eps2)}</div>`
    + "<figcaption>Eight clients and one model for all, trained until it converges. Which clients pull at it, and would CFL with relative lengths split them?</figcaption>"
    + `<details><summary>The numbers as a table</summary><div class="scroll" tabindex="0" role="region" aria-label="numbers of the figure">${table(end)}</div></details>\n`;
}

function live(figure) {
  let { preset, hidden, noise, eps2 } = FIRST, state = fresh(preset, noise), client = 7, point = -1, clients, end;
  const says = make("output", { className: "says", "aria-live": "polite" }), stage = figure.querySelector(".scene"), numbers = figure.querySelector(".scroll");
  const mean = (own, axis) => point < 0 ? own.reduce((s, p) => s + p[axis], 0) / own.length : own[point][axis];
  const draw = oncePerFrame(() => {
    clients = place(state);
    end = solve(clients, hidden);
    stage.innerHTML = scene(clients, hidden, end, eps2, client);
    numbers.innerHTML = table(end);
    const text = sentence(end, eps2);
    if (says.textContent !== text) says.textContent = text;
  });
  const move = (axis) => (to) => { // all points of the client, or one
    const own = state.points[client], by = to - mean(own, axis);
    own.forEach((p, j) => { if (point < 0 || j === point) p[axis] += by; });
    draw();
  };
  const whole = (v) => `${show(v, 0)}°`;
  const turn = slider("turn", [-180, 180, 5], 0, (v) => { state.turn[client] = v; draw(); }, whole);
  const across = slider("left and right", [-3, 3, 0.1], 0, move(0)), along = slider("down and up", [-3, 3, 0.1], 0, move(1));
  const flip = make("input", { type: "checkbox", onchange: () => { state.flip[client] = flip.checked; draw(); } });
  const sync = () => {
    turn.set(state.turn[client]); flip.checked = state.flip[client];
    across.set(mean(state.points[client], 0)); along.set(mean(state.points[client], 1));
    who.select.value = client; which.select.value = point;
  };
  const spread = slider("noise", [0, 2, 0.1], noise, (v) => { noise = state.noise = v; draw(); });
  const threshold = slider("threshold ε₂", [0, 1.5, 0.05], eps2, (v) => { eps2 = v; draw(); });
  const kind = menu("Clients", Object.entries(PRESETS).map(([k, p]) => [k, p.name]), preset, (v) => { preset = v; state = fresh(v, noise); sync(); draw(); });
  const units = choice("Hidden units", [[0, "none"], [8, "8"]], hidden, (v) => { hidden = v; draw(); });
  const who = menu("Client", state.points.map((_, i) => [i, String(i + 1)]), client, (v) => { client = Number(v); sync(); draw(); });
  const which = menu("Moved", [[-1, "all its points"], ...Array.from({ length: POINTS }, (_, j) => [j, `point ${j + 1}`])], point, (v) => { point = Number(v); sync(); draw(); });
  const row = (...parts) => make("div", { className: "controls" }, ...parts);
  figure.prepend(row(kind.label, units.label, spread.label, threshold.label), says);
  stage.before(row(who.label, which.label, turn.label, make("label", {}, make("span", {}, "flip its labels"), flip)), row(across.label, along.label));

  // a finger or the mouse takes the nearest point; with several fingers or beside the points the page scrolls
  const where = (e) => {
    const box = stage.querySelector(".plane svg").getBoundingClientRect(), s = 300 / box.width;
    return [((e.clientX - box.left) * s - 150) / 46, (150 - (e.clientY - box.top) * s) / 46];
  };
  let held = null;
  stage.onpointerdown = (e) => {
    if (!e.target.closest(".plane")) return;
    const [a, b] = where(e);
    let best = 0.35;
    clients.forEach((own, i) => own.forEach((p, j) => { const d = Math.hypot(p[0] - a, p[1] - b); if (d < best) { best = d; held = [i, j]; } }));
    if (!held) return;
    [client] = held;
    stage.setPointerCapture(e.pointerId);
    sync(); draw();
  };
  stage.onpointermove = (e) => {
    if (!held) return;
    const [i, j] = held, t = -state.turn[i] * Math.PI / 180, to = where(e).map((v) => Math.max(-3, Math.min(3, v)));
    state.points[i][j][0] = to[0] * Math.cos(t) - to[1] * Math.sin(t) - noise * jitter(40 * i + 2 * j);
    state.points[i][j][1] = to[0] * Math.sin(t) + to[1] * Math.cos(t) - noise * jitter(40 * i + 2 * j + 1);
    sync(); draw();
  };
  stage.onpointerup = stage.onpointercancel = () => { held = null; };
  stage.addEventListener("touchmove", (e) => { if (held) e.preventDefault(); }, { passive: false });
  sync();
  draw();
}

start("playground", live);
