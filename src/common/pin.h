/*
 * pin.h
 *		The settings that output functions look at, each at one fixed value.
 */
#ifndef INCSINK_PIN_H
#define INCSINK_PIN_H

/*
 * Sets, until the end of the GUC nest level of the caller, every setting that
 * an output function could look at (DateStyle, IntervalStyle, TimeZone,
 * extra_float_digits, bytea_output, lc_monetary, xmlbinary, search_path, ...)
 * to one fixed value.
 */
extern void PinOutputSettings(void);

#endif							/* INCSINK_PIN_H */
