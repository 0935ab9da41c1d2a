/* Filters, split over files by what they work on. Each takes the filtered value as its first argument. */
#ifndef TEMPLATE_FILTERS_H
#define TEMPLATE_FILTERS_H

#include "eval.h"

typedef int filter_fn(struct eval *e, const struct args *args, struct value *out);

filter_fn filter_abs, filter_int, filter_float, filter_round, filter_default, filter_length, filter_string,
    filter_tojson, filter_attr, filter_items, filter_safe;
filter_fn filter_upper, filter_lower, filter_capitalize, filter_title, filter_trim, filter_replace,
    filter_indent, filter_escape, filter_center, filter_format, filter_wordcount, filter_truncate;
filter_fn filter_urlencode, filter_xmlattr, filter_filesizeformat, filter_wordwrap, filter_random;
filter_fn filter_first, filter_last, filter_list, filter_reverse, filter_join, filter_sum, filter_min,
    filter_max, filter_sort, filter_unique, filter_dictsort, filter_groupby, filter_batch, filter_slice;
filter_fn filter_map, filter_select, filter_reject, filter_selectattr, filter_rejectattr;

/* "a.b.0" of a value, item by item; fallback (may be NULL) stands in for what is undefined. */
int value_path(struct eval *e, const struct value *v, const struct value *path, const struct value *fallback,
               struct value *out);

#endif
