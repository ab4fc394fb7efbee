// The page of an explorer: colours, the slider, names, lists, and the report of a row.

const MOST_HOVERED = 8 // columns beside the pointer
const MOST_CLASSES = 20 // of a legend
const MOST_DIGITS = 12 // decimals; more are written with an exponent

const DIRECTIONS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g // they turn texts around
const NUMBERS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
const SEPARATED = 10000 // thousands are, from here on: years are below
const NEARLY_ALL = 0.995 // of the weight

export default ({rows, behind, links, stored, queries, colors, about}) => {
  const data = rows.data
  const find = id => document.getElementById(id)
  const {labels, columns, nNeighbors, order} = about
  const places = new Map(Array.from(order, (row, place) => [row, place]))

  // -- elements, whose texts are escaped by the browser --

  function make(tag, attributes = {}, ...children) {
    const made = document.createElement(tag)
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value)
    made.append(...children)
    return made
  }

  const own = text => make("bdi", {}, text) // of a user: it turns no text around it

  function amount(value) { // of the target's unit
    if (Number.isNaN(value)) return "unknown"
    if (labels !== null) return labels[value].replace(DIRECTIONS, "")
    const digits = {minimumFractionDigits: about.decimals, maximumFractionDigits: about.decimals}
    return (about.decimals > 6 ? value.toPrecision(3) : value.toLocaleString("en-US", digits))
      .replace("-", "\u2212")
  }

  function cell(column, row) { // the content of a column of the table
    const value = data[`f${column}`][row]
    if (about.pictures) return make("img", {src: value, alt: ""})
    if (typeof value === "string") return own(value)
    if (Number.isNaN(value)) return "missing"
    const digits = about.digits[column]
    const extreme = digits > MOST_DIGITS || Math.abs(value) >= 1e15
    const text = extreme ? value.toPrecision(5)
      : Math.abs(value) < SEPARATED ? String(Number(value.toFixed(digits)))
      : value.toLocaleString("en-US", {maximumFractionDigits: digits})
    return text.replace("-", "\u2212")
  }

  const share = weight => `${(100 * weight).toFixed(weight < 0.095 ? 1 : 0)}%`

  // -- the report of a row --

  function linesOf(row) { // the rows behind its prediction
    const lines = []
    for (let place = row * nNeighbors; place < (row + 1) * nNeighbors; place++) {
      if (behind.data.row[place] < 0) continue
      const differs = [0, 1, 2].map(i => behind.data[`differs${i}`]?.[place])
      lines.push({
        row: behind.data.row[place],
        weight: behind.data.weight[place],
        adjusted: behind.data.adjusted[place],
        differs: new Set(differs),
      })
    }
    return lines
  }

  function table(row, lines) {
    const name = text => make("th", {scope: "row"}, text)
    const line = (text, query, contents) =>
      make("tr", {}, name(text), make("td", {}, query), ...contents)
    const texts = values => values.map(value => make("td", {}, value))
    const largest = Math.max(...lines.map(each => each.weight))
    const bar = weight => make("span", {class: "bar", style: `width: ${100 * weight / largest}%`})
    const called = (name, value) => make("span", {}, make("small", {class: "soft"}, `${name} `), value)
    const left = 1 - lines.reduce((sum, each) => sum + each.weight, 0)
    const others = left > 1 - NEARLY_ALL ? [left] : []
    const blank = others.map(() => make("td", {}))
    const shares = [
      ...lines.map(({weight}) => make("td", {}, share(weight), bar(weight))),
      ...others.map(weight => make("td", {}, share(weight))),
    ]
    const body = [
      line("weight", "", shares),
      line(own(about.target), called("true", amount(data.target[row])),
        [...texts(lines.map(each => amount(data.target[each.row]))), ...blank]),
    ]
    if (labels === null) {
      const adjusted = texts(lines.map(each => amount(each.adjusted)))
      body.push(line("adjusted to the query", called("predicted", amount(data.prediction[row])), [...adjusted, ...blank]))
    }
    for (const j of byDifference(lines)) {
      const cells = lines.map(each => make("td", each.differs.has(j) ? {class: "differs"} : {}, cell(j, each.row)))
      body.push(line(own(columns[j]), cell(j, row), [...cells, ...blank]))
    }
    const button = each => make("button", {type: "button", "data-row": each.row, title: data.name[each.row]}, own(data.name[each.row]))
    const head = ["", own(data.name[row]), ...lines.map(button), ...others.map(() => "others")]
    return make("div", {class: "scroll", tabindex: 0, role: "region", "aria-label": "The rows behind it"},
      make("table", {class: "beside"},
        make("thead", {}, make("tr", {}, ...head.map(text => make("th", {scope: "col"}, text)))),
        make("tbody", {}, ...body)))
  }

  function byDifference(lines) { // columns, those first in which rows of much weight differ
    const weights = columns.map((_, j) =>
      lines.reduce((sum, each) => sum + (each.differs.has(j) ? each.weight : 0), 0))
    return [...columns.keys()].sort((i, j) => weights[j] - weights[i] || i - j)
  }

  function report(row, lines) {
    const kind = row < about.nStored ? "Stored row, predicted without itself" : "Query"
    const alone = Number.isNaN(data.prediction[row])
    const certainty = alone ? "No stored row is earlier" : labels === null
      ? `${about.coverage} interval: ${amount(data.low[row])} to ${amount(data.high[row])}`
      : data.chances[row]
    const total = lines.reduce((sum, each) => sum + each.weight, 0)
    const which = lines.length === 1 ? "This row makes"
      : `These ${NUMBERS[lines.length] ?? lines.length} rows make`
    const carried = alone ? "" : lines.length === 0
      ? "The rows behind this prediction are not on the map."
      : `${which} up ${share(total)} of the prediction.`
    return [
      make("h2", {}, own(data.name[row])),
      make("p", {class: "soft"}, kind),
      make("p", {class: "value"}, amount(data.prediction[row])),
      make("p", {}, certainty),
      make("p", {}, `True value: ${amount(data.target[row])}`),
      make("p", {}, carried),
      ...(lines.length === 0 ? [] : [table(row, lines)]),
    ]
  }

  function draw(row, lines) {
    const all = (column, of) => lines.map(each => data[column][of(each)])
    links.data = {
      x0: all("x", () => row), y0: all("y", () => row),
      x1: all("x", each => each.row), y1: all("y", each => each.row),
      width: lines.map(each => 1 + 6 * each.weight),
    }
  }

  let shown = null
  function show(row) {
    if (row === shown) return
    shown = row
    const lines = linesOf(row)
    draw(row, lines)
    find("report").replaceChildren(...report(row, lines))
    find("report").scrollTop = 0
    const place = places.get(row)
    find("place").value = place === undefined ? "" : `${place + 1} of ${order.length}`
    if (place !== undefined) find("slider").value = place + 1
    rows.selected.indices = [row]
  }

  // -- colours --

  function paint(mode) {
    for (const glyph of [stored, queries].flatMap(dots => [dots.glyph, dots.selection_glyph, dots.nonselection_glyph])) {
      glyph.fill_color = {field: mode, transform: colors[mode]}
    }
    find("legend").replaceChildren(...legend(mode))
  }

  function legend(mode) {
    const {low, high, palette} = colors[mode]
    if (labels !== null && mode !== "error") {
      const more = labels.length - MOST_CLASSES
      return [
        ...labels.slice(0, MOST_CLASSES).map((label, i) =>
          make("span", {}, make("i", {style: `background: ${palette[i]}`}), own(label))),
        ...(more > 0 ? [`and ${more} more`] : []),
      ]
    }
    const write = value => mode === "error" && labels !== null ? share(value) : amount(value)
    const known = Array.from(data[mode]).filter(value => !Number.isNaN(value))
    const [under, over] = [known.some(value => value < low), known.some(value => value > high)]
    const stops = palette.filter((_, i) => i % 25 === 0)
    return [`${under ? "\u2264 " : ""}${write(low)}`, make("i", {class: "scale", style: `background: linear-gradient(90deg, ${stops})`}),
      `${over ? "\u2265 " : ""}${write(high)}`]
  }

  // -- beside the pointer --

  function tip(row) {
    const some = columns.slice(0, MOST_HOVERED)
    const lines = some.map((column, j) => make("div", {}, own(column), ": ", cell(j, row)))
    return [
      make("strong", {}, own(data.name[row])),
      make("div", {}, own(about.target), `: ${amount(data.target[row])}`),
      make("div", {}, `prediction: ${amount(data.prediction[row])}`),
      ...lines,
    ]
  }

  addEventListener("nona-hover", ({detail: [, {index, geometry}]}) => {
    const row = index.indices[0]
    find("tip").hidden = row === undefined
    if (row === undefined) return
    find("tip").replaceChildren(...tip(row))
    const left = geometry.sx > find("map").clientWidth / 2
    const side = left ? {right: `${find("map").clientWidth - geometry.sx + 12}px`, left: "auto"}
      : {left: `${geometry.sx + 12}px`, right: "auto"}
    Object.assign(find("tip").style, side, {top: `${geometry.sy + 12}px`})
  })

  // -- what a reader does --

  addEventListener("nona-tap", () => {
    const {indices} = rows.selected
    if (indices.length > 0) show(indices[0])
  })
  find("color").addEventListener("change", event => paint(event.target.value))
  find("stored")?.addEventListener("change", event => { stored.visible = event.target.checked })
  find("slider").addEventListener("input", event => show(order[event.target.value - 1]))
  find("name").addEventListener("input", event => event.target.setCustomValidity(""))
  find("name").addEventListener("keydown", event => {
    if (event.key !== "Enter") return
    event.preventDefault()
    const name = event.target.value.trim()
    const after = data.name.indexOf(name, shown + 1) // several rows may have a name
    const row = after < 0 ? data.name.indexOf(name) : after
    event.target.setCustomValidity(row < 0 ? "No row has this name" : "")
    if (row < 0) event.target.reportValidity()
    else show(row)
  })
  addEventListener("submit", event => event.preventDefault())
  addEventListener("click", event => {
    const {row} = event.target.closest("button[data-row]")?.dataset ?? {}
    if (row === undefined) return
    show(Number(row))
    find("report").scrollIntoView({block: "nearest"})
  })

  paint("target")
  show(order[0])
}
