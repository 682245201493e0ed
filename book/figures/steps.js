// Local steps: two clients with quadratic losses walk from the server's model, and the server takes the mean.

const CURVES = [[9, 1], [0.64, 4]], LOWEST = [[-1, 0.8], [1, -0.6]], BEGIN = [1, 1.1], METHODS = ["FedAvg", "FedProx", "SCAFFOLD"];
const ROUNDS = 40;

/** Where the server stands after each round; client k's gradient is curve * (theta - lowest), axis by axis. */
function walk(method, steps, lr, mu, rounds = ROUNDS) {
  let server = [...BEGIN], own = [[0, 0], [0, 0]];
  const path = [server];
  for (let t = 0; t < rounds; t++) {
    const all = [0, 1].map((axis) => (own[0][axis] + own[1][axis]) / 2);
    const ends = CURVES.map((curve, k) => server.map((from, axis) => {
      let theta = from;
      for (let s = 0; s < steps; s++) {
        let g = curve[axis] * (theta - LOWEST[k][axis]);
        if (method === "FedProx") g += mu * (theta - from);
        if (method === "SCAFFOLD") g += all[axis] - own[k][axis];
        theta -= lr * g;
      }
      return theta;
    }));
    own = own.map((c, k) => c.map((v, axis) => v - all[axis] + (server[axis] - ends[k][axis]) / (steps * lr)));
    server = [0, 1].map((axis) => (ends[0][axis] + ends[1][axis]) / 2);
    path.push(server);
  }
  return path;
}

/** Where the walk ends after very many rounds, in closed form: a mean of the lowest points, weighted by how far a client gets. */
function end(method, steps, lr, mu) {
  return [0, 1].map((axis) => {
    const far = CURVES.map((c) => {
      if (method === "SCAFFOLD") return c[axis];
      const tied = c[axis] + (method === "FedProx" ? mu : 0);
      return c[axis] / tied * (1 - (1 - lr * tied) ** steps);
    });
    return (far[0] * LOWEST[0][axis] + far[1] * LOWEST[1][axis]) / (far[0] + far[1]);
  });
}

const apart = (a, b) => Math.hypot(a[0] - b[0], a[1] - b[1]);
const star = () => end("SCAFFOLD");

function sentence({ steps, lr, mu }) {
  const missed = METHODS.map((m) => apart(end(m, steps, lr, mu), star()));
  const slow = apart(walk("SCAFFOLD", steps, lr, mu).at(-1), star());
  if (steps === 1) return "With one step a round FedAvg is gradient descent on the mean loss: it ends at the star. Give the clients more steps.";
  return `With ${steps} steps a round FedAvg ends ${show(missed[0])} from the star, however many rounds follow: this is client drift. `
    + `FedProx with μ = ${show(mu, 1)} ends ${show(missed[1])} from it. SCAFFOLD ends at the star; after ${ROUNDS} rounds it is ${show(slow)} away.`;
}

/** The picture: contours of the mean loss, the clients' lowest points, three walks. */
function scene({ steps, lr, mu }) {
  const at = ([a, b]) => `${(220 + 150 * a).toFixed(1)} ${(190 - 150 * b).toFixed(1)}`, best = star();
  const bend = [0, 1].map((axis) => (CURVES[0][axis] + CURVES[1][axis]) / 2), [cx, cy] = at(best).split(" ");
  const rings = [0.1, 0.3, 0.6, 1, 1.5, 2.2].map((h) => `<ellipse class="grid" cx="${cx}" cy="${cy}" rx="${(150 * Math.sqrt(2 * h / bend[0])).toFixed(1)}" ry="${(150 * Math.sqrt(2 * h / bend[1])).toFixed(1)}"/>`).join("");
  const walks = METHODS.map((method, n) => {
    const path = walk(method, steps, lr, mu), dashes = ["", "7 3", "2 3"][n], colour = `var(--g${n})`, [u, v] = at(path.at(-1)).split(" ");
    return `<path class="curve" stroke="${colour}" stroke-dasharray="${dashes}" d="M${path.map(at).join("L")}"/>`
      + path.slice(1).map((p) => { const [x, y] = at(p).split(" "); return `<circle cx="${x}" cy="${y}" r="2" fill="${colour}"/>`; }).join("")
      + `<circle cx="${u}" cy="${v}" r="6" fill="${colour}"/><path class="curve" stroke="${colour}" stroke-dasharray="${dashes}" d="M446 ${30 + 44 * n}h24"/>`
      + `<text x="478" y="${34 + 44 * n}">${method}</text><text x="478" y="${50 + 44 * n}">${show(apart(end(method, steps, lr, mu), best))} away</text>`;
  }).join("");
  const crosses = LOWEST.map((p, k) => `<path d="M${at(p)}m-6-6l12 12m0-12l-12 12" stroke="currentColor" stroke-width="3"/><text class="mid" x="${at(p).split(" ")[0]}" y="${Number(at(p).split(" ")[1]) + (k ? 22 : -14)}">client ${k + 1} alone</text>`).join("");
  const points = Array.from({ length: 10 }, (_, i) => { const r = i % 2 ? 4 : 10, t = Math.PI * i / 5; return `${(Number(cx) + r * Math.sin(t)).toFixed(1)},${(cy - r * Math.cos(t)).toFixed(1)}`; }).join(" ");
  return `<svg viewBox="0 0 580 330" role="img" aria-label="Walks of three methods on the plane of two parameters."><svg x="0" y="0" width="440" height="330">${rings}</svg>${walks}${crosses}`
    + `<polygon points="${points}" fill="currentColor"/><path d="M458 166l3 8 8 0-6 6 2 8-7-5-7 5 2-8-6-6 8 0z" fill="currentColor"/><text x="478" y="182">best for both</text><text x="${(220 + 150 * BEGIN[0] + 8)}" y="${190 - 150 * BEGIN[1] + 4}">start</text></svg>`;
}

function table({ steps, lr, mu }) {
  const rows = METHODS.map((m) => { const e = end(m, steps, lr, mu), w = walk(m, steps, lr, mu).at(-1); return `<tr><th scope="row">${m}</th>${[...w, ...e, apart(e, star())].map((v) => `<td>${show(v, 3)}</td>`).join("")}</tr>`; });
  return `<table><thead><tr><th>method</th><th>θ₁ after ${ROUNDS} rounds</th><th>θ₂</th><th>θ₁ in the end</th><th>θ₂</th><th>from the star</th></tr></thead><tbody>${rows.join("")}</tbody></table>`;
}

const FIRST = { steps: 20, lr: 0.05, mu: 3 };

function still() {
  return `<div class="scene">${scene(FIRST)}</div><figcaption>Two clients, two parameters: the server's model after each round.</figcaption>`
    + `<details><summary>The numbers as a table</summary><div class="scroll" tabindex="0" role="region" aria-label="numbers of the figure">${table(FIRST)}</div></details>\n`;
}

function live(figure) {
  const state = { ...FIRST }, says = make("output", { className: "says", "aria-live": "polite" });
  const draw = oncePerFrame(() => {
    figure.querySelector(".scene").innerHTML = scene(state);
    figure.querySelector(".scroll").innerHTML = table(state);
    says.textContent = sentence(state);
  });
  const control = (name, key, range, digits) => slider(name, range, state[key], (v) => { state[key] = v; draw(); }, (v) => show(v, digits)).label;
  figure.prepend(make("div", { className: "controls" }, control("local steps", "steps", [1, 50, 1], 0), control("learning rate", "lr", [0.01, 0.1, 0.01], 2), control("FedProx's μ", "mu", [0, 8, 0.5], 1)), says);
  draw();
}

start("steps", live);
