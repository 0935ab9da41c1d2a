#include "tools/tool.h"

#include <string.h>

#define S(name, what)  "\"" name "\":{\"type\":\"string\",\"description\":\"" what "\"}"
#define I(name, what)  "\"" name "\":{\"type\":\"integer\",\"description\":\"" what "\"}"
#define B(name, what)  "\"" name "\":{\"type\":\"boolean\",\"description\":\"" what "\"}"
#define O(props, need) "{\"type\":\"object\",\"properties\":{" props "},\"required\":[" need "]}"

static const struct tool_spec LIST[] = {
    {"read",
     "Read a text file of the project. Lines come numbered, at most 400 lines or 16 KiB at once; the end "
     "says how "
     "many remain. Read before you edit by lines or replace a file.",
     O(S("path", "relative to the project") "," I("start", "first line, from 1") "," I("lines", "how many"),
       "\"path\""),
     true},
    {"write",
     "Write a whole file. To replace an existing file set replace and have read its present content.",
     O(S("path", "relative to the project") "," S("content", "the whole file") "," B(
           "replace", "the file exists and is replaced"),
       "\"path\",\"content\""),
     false},
    {"edit",
     "Change a file. Either old and new: old is the exact present text and occurs once (or set all). Or "
     "start, end "
     "and new: replaces these lines, which must have been read; end = start - 1 inserts before start.",
     O(S("path", "relative to the project") "," S("old", "exact text to replace") "," S(
           "new",
           "text in its place") "," B("all",
                                      "replace every occurrence") "," I("start",
                                                                        "first line") "," I("end",
                                                                                            "last line"),
       "\"path\",\"new\""),
     false},
    {"grep",
     "Search the project's files for a regular expression (PCRE). Ignored and binary files are skipped. At "
     "most "
     "200 hits as path:line:text.",
     O(S("pattern", "regular expression") "," S("path", "folder or file") "," S(
           "glob", "only such files: *.c, src/**") "," I("context", "lines around each hit") "," I("max",
                                                                                                   "hits"),
       "\"pattern\""),
     true},
    {"glob", "Find files by name, newest first, at most 200. ** crosses folders.",
     O(S("pattern", "for example src/**/*.h") "," S("path", "folder"), "\"pattern\""), true},
    {"bash",
     "Run a shell command in the project, in a sandbox without network. Each call is a new shell. Output and "
     "errors "
     "come together. Do not use it to read or edit files where another tool does.",
     O(S("command", "for sh -c") "," I("timeout", "seconds, 120 unless told, at most 1800") "," B(
           "background",
           "go on at once; ask for it with job") "," B("network",
                                                       "needs the network") "," S("why",
                                                                                  "for the user, when you "
                                                                                  "ask for network or "
                                                                                  "background"),
       "\"command\""),
     false},
    {"job", "Ask for a command in the background: its status, its output since the last look, or stop it.",
     O(I("id", "number of the job") ",\"action\":{\"type\":\"string\",\"enum\":[\"status\",\"output\","
                                    "\"stop\"]}," I("wait", "seconds to wait for its end, at most 60"),
       "\"id\",\"action\""),
     true},
    {"todo", "Set the list of tasks that the user sees. Send the whole list; one item at a time is doing.",
     O("\"items\":{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{\"text\":{\"type\":"
       "\"string\"},"
       "\"state\":{\"type\":\"string\",\"enum\":[\"open\",\"doing\",\"done\"]}},\"required\":[\"text\","
       "\"state\"]}}",
       "\"items\""),
     true},
    {"recall",
     "Find what was said or printed before: words to search for, or an id such as m-0123 or o-31 with lines.",
     O(S("query", "words") "," S("id", "m-… or o-…") "," I("start", "first line") "," I("lines", "how many"),
       ""),
     true},
    {"ask", "Ask the user one question when you cannot go on without the answer.",
     O(S("question", "one sentence") ",\"options\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}}",
       "\"question\""),
     true},
    {"skill", "Load the text of a skill that the opening note names.", O(S("name", "its name"), "\"name\""),
     true},
    {"mcp", "Call a tool of an MCP server or extension. Without tool: the list of its tools.",
     O(S("server", "its name") "," S("tool", "name of the tool") ",\"arguments\":{\"type\":\"object\"}",
       "\"server\""),
     false},
};

const struct tool_spec *tool_list(size_t *n)
{
    *n = sizeof LIST / sizeof *LIST;
    return LIST;
}

const struct tool_spec *tool_find(const char *name)
{
    for (size_t i = 0; i < sizeof LIST / sizeof *LIST; i++)
        if (strcmp(LIST[i].name, name) == 0)
            return &LIST[i];
    return NULL;
}
