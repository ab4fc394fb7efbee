// The page of an explorer: colours, the slider, names, lists, and the report of a row.

const MOST_HOVERED = 8 // columns beside the pointer
const MOST_CLASSES = 20 // of a legend
const MOST_DIGITS = 12 // decimals; more are written with an exponent

export default ({rows, behind, links, dots, colors, about}) => {
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

  function amount(value) { // of the target's unit
    if (Number.isNaN(value)) return "unknown"
    if (labels !== null) return labels[value]
    const digits = {minimumFractionDigits: about.decimals, maximumFractionDigits: about.decimals}
    return (about.decimals > 6 ? value.toPrecision(3) : value.toLocaleString("en-US", digits))
      .replace("-", "\u2212")
  }

  function cell(column, row) { // the content of a column of the table
    const value = data[`f${column}`][row]
    if (about.pictures) return make("img", {src: value, alt: ""})
    if (typeof value === "string") return value
    if (Number.isNaN(value)) return "missing"
    const digits = about.digits[column]
    const extreme = digits > MOST_DIGITS || Math.abs(value) >= 1e15
    const text = extreme ? value.toPrecision(5) : String(Number(value.toFixed(digits)))
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
    const body = [
      line("weight", "", lines.map(({weight}) => make("td", {}, share(weight), bar(weight)))),
      line(about.target, amount(data.target[row]), texts(lines.map(each => amount(data.target[each.row])))),
    ]
    if (labels === null) {
      const adjusted = texts(lines.map(each => amount(each.adjusted)))
      body.push(line("adjusted to the query", amount(data.prediction[row]), adjusted))
    }
    for (const [j, column] of columns.entries()) {
      const cells = lines.map(each => make("td", each.differs.has(j) ? {class: "differs"} : {}, cell(j, each.row)))
      body.push(line(column, cell(j, row), cells))
    }
    const button = each => make("button", {type: "button", "data-row": each.row}, data.name[each.row])
    const head = ["", data.name[row], ...lines.map(button)]
    return make("div", {class: "scroll", tabindex: 0, role: "region", "aria-label": "The rows behind it"},
      make("table", {class: "beside"},
        make("thead", {}, make("tr", {}, ...head.map(text => make("th", {scope: "col"}, text)))),
        make("tbody", {}, ...body)))
  }

  function report(row, lines) {
    const kind = row < about.nStored ? "Stored row, predicted without itself" : "Query"
    const alone = Number.isNaN(data.prediction[row])
    const certainty = alone ? "No stored row is earlier" : labels === null
      ? `${about.coverage} interval: ${amount(data.low[row])} to ${amount(data.high[row])}`
      : data.chances[row]
    const total = lines.reduce((sum, each) => sum + each.weight, 0)
    const which = lines.length === 1 ? "One row of the map carries" : `${lines.length} rows of the map carry`
    const carried = alone ? "" : lines.length === 0
      ? "The rows behind this prediction are not on the map."
      : `${which} ${share(total)} of the weight.`
    return [
      make("h2", {}, data.name[row]),
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
    const place = places.get(row)
    find("place").value = place === undefined ? "" : `${place + 1} of ${order.length}`
    if (place !== undefined) find("slider").value = place + 1
    rows.selected.indices = [row]
  }

  // -- colours --

  function paint(mode) {
    for (const glyph of [dots.glyph, dots.selection_glyph, dots.nonselection_glyph]) {
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
          make("span", {}, make("i", {style: `background: ${palette[i]}`}), label)),
        ...(more > 0 ? [`and ${more} more`] : []),
      ]
    }
    const write = value => mode === "error" && labels !== null ? share(value) : amount(value)
    const stops = palette.filter((_, i) => i % 25 === 0)
    return [write(low), make("i", {class: "scale", style: `background: linear-gradient(90deg, ${stops})`}), write(high)]
  }

  // -- beside the pointer --

  function tip(row) {
    const some = columns.slice(0, MOST_HOVERED)
    const lines = some.map((column, j) => make("div", {}, `${column}: `, cell(j, row)))
    return [
      make("strong", {}, data.name[row]),
      make("div", {}, `${about.target}: ${amount(data.target[row])}`),
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
