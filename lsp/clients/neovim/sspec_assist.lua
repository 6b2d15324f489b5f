-- Grey text from sspec-assist in Neovim 0.12 or newer.
--
-- Put this file into ~/.config/nvim/lua/ and call it from init.lua:
--
--   require("sspec_assist").setup()
--   vim.o.statusline = "%f %m %= %{v:lua.require'sspec_assist'.statusline()} %l:%c"
--
-- It attaches to every file; `filetypes` limits that. `settings` are those that README.md lists.

local M = {}

M.defaults = {
  cmd = { "sspec-assist", "lsp" },
  filetypes = nil,
  root_markers = { ".git" },
  settings = {}, -- for example { multiline = "never", languages = { markdown = false } }
  keys = { accept = "<Tab>", next = "<M-]>", previous = "<M-[>" }, -- false leaves one out
}

M.status = nil -- what the server told last

local function map(key, action)
  if key then
    vim.keymap.set("i", key, action, { expr = true, replace_keycodes = true, desc = "sspec-assist" })
  end
end

-- Takes the grey text, or does what the key does otherwise.
local function accept(key)
  return function()
    return vim.lsp.inline_completion.get() and "" or key
  end
end

local function select(count)
  return function()
    -- A mapping's expression may not change the buffer's marks.
    vim.schedule(function()
      vim.lsp.inline_completion.select({ count = count })
    end)
    return ""
  end
end

local function take(status)
  M.status = status
  vim.cmd.redrawstatus({ bang = true })
end

function M.setup(options)
  if not vim.lsp.inline_completion then
    vim.notify("sspec-assist needs Neovim 0.12 or newer", vim.log.levels.WARN)
    return
  end
  options = vim.tbl_deep_extend("force", M.defaults, options or {})
  vim.lsp.config("sspec_assist", {
    cmd = options.cmd,
    filetypes = options.filetypes,
    root_markers = options.root_markers,
    settings = { sspecAssist = options.settings },
    handlers = {
      ["sspecAssist/status"] = function(_, status)
        take(status)
      end,
    },
    on_exit = function()
      vim.schedule(function()
        take({ state = "away", text = "The language server has ended." })
      end)
    end,
  })
  vim.lsp.enable("sspec_assist")
  vim.lsp.inline_completion.enable()
  map(options.keys.accept, accept(options.keys.accept))
  map(options.keys.next, select(1))
  map(options.keys.previous, select(-1))
end

local words = {
  paused = "waits",
  asleep = "asleep",
  failed = "failed",
  away = "away",
  off = "off",
}

-- How the model is, in a few characters; empty before the server said anything.
function M.statusline()
  local status = M.status
  if not status then
    return ""
  end
  if status.state == "loading" then
    return "sspec " .. (status.text:match("%d+ %%") or "loads")
  end
  local parts = { "sspec", words[status.state] }
  if status.state == "ready" then
    if type(status.alpha) == "number" then
      table.insert(parts, ("α %.2f"):format(status.alpha))
    end
    if type(status.timesPlain) == "number" then
      table.insert(parts, ("%.2f ×"):format(status.timesPlain))
    end
  end
  return table.concat(parts, " ")
end

return M
